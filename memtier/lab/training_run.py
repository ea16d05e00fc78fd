"""A small training run under FSDP2 that may be killed at any moment and goes on from its newest checkpoint.

    torchrun --standalone --nproc-per-node 2 -m memtier.lab.training_run FOLDER

prints a loss a step and saves to FOLDER/local, FOLDER/shared and FOLDER/object. Kill it, start it again, with another
number of processes if you like: the losses continue as if nothing had happened, bit for bit.

The model is a stack of matrices that learns a fixed function. What is random is drawn from the seed and the step's
number, so that there is no generator's state to save. Every rank sees the same batch unless told otherwise: the mean
of equal gradients is exact for 1, 2 and 4 ranks, and losses do not depend on their number.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from memtier import checks
from memtier.lab.checkpoint_store import Store
from memtier.lab.checkpoints import Checkpointer, Restored, print_line

BATCH = 8


@dataclass(frozen=True)
class Settings:
    """What decides the losses. width, depth: of the model, width² · depth parameters and biases, in fp32.

    own_data: a batch of its own for every rank, as in earnest; losses then depend on the number of ranks.
    """

    width: int = 64
    depth: int = 3
    seed: int = 0
    own_data: bool = False

    def __post_init__(self):
        for name in ("width", "depth"):
            checks.whole(name, getattr(self, name), most=4096)


class Training:
    """The model, its AdamW and the number of the last step: what a checkpoint must hold. Needs a process group."""

    def __init__(self, settings: Settings):
        self.settings, self.step = settings, 0
        torch.manual_seed(settings.seed)
        layers = (nn.Sequential(nn.Linear(settings.width, settings.width), nn.Tanh()) for _ in range(settings.depth))
        self.model = nn.Sequential(*layers)
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for module in [*self.model, self.model]:
            fully_shard(module, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    def train_step(self) -> float:
        """One step; the loss, a mean over all ranks."""
        self.step += 1
        draw = torch.Generator().manual_seed(
            self.settings.seed * 1_000_003 + self.step * 64 + (dist.get_rank() if self.settings.own_data else 0))
        inputs = torch.randn(BATCH, self.settings.width, generator=draw)
        loss = (self.model(inputs) - torch.sin(2 * inputs.roll(1, 1))).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        mean = loss.detach()
        dist.all_reduce(mean)
        return mean.item() / dist.get_world_size()

    def state_dict(self) -> dict:
        """Weights, both moments and the step counters of AdamW, and the step: views of what training changes."""
        weights, moments = get_state_dict(self.model, self.optimizer)
        return {"model": weights, "optimizer": moments, "step": torch.tensor(self.step)}

    def load_state_dict(self, state: dict) -> None:
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"],
                       optim_state_dict=state["optimizer"])
        self.step = int(state["step"])


def train(settings: Settings, places: list[Store], *, until: int, each: Callable[[int, float], None],
          started: Callable[[Restored | None], None] = lambda restored: None,
          clock: Callable[[Training], Callable[[], float]] = lambda training: time.monotonic,
          close: float | None = None, **options) -> Restored | None:
    """Go on from the newest checkpoint, or from the start, to step `until`; every rank calls this.

    each: called with every step's number and loss. started: with what was restored, before the first step.
    clock: makes the Checkpointer's clock of the training. close: seconds the copies have at the end.
    options: Checkpointer's own. No store: nothing is saved.
    """
    training = Training(settings)
    if not places:
        while training.step < until:
            loss = training.train_step()
            each(training.step, loss)
        return None
    checkpointer = Checkpointer(places, clock=clock(training), **options)
    restored = checkpointer.restore(training)
    started(restored)
    while training.step < until:
        loss = training.train_step()
        each(training.step, loss)
        checkpointer.after_step(training.step, training)
    checkpointer.close(close)
    return restored


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where local/, shared/ and object/ are made")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=0.1, help="how long a step takes, at least")
    parser.add_argument("--every", type=float, nargs=3, default=[1, 5, 15], metavar="SECONDS",
                        help="between versions of each store")
    given = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    first = dist.get_rank() == 0

    def each(step: int, loss: float) -> None:
        if first:
            print_line(f"step {step:4}  loss {loss:.6f}  {loss.hex()}")
        time.sleep(given.seconds)

    def started(restored: Restored | None) -> None:
        if first:
            print_line(f"from step {restored.step}, {restored.store}" if restored else "from the start")

    names = ("local", "shared", "object")
    places = [Store(name, str(given.folder.resolve() / name), every)
              for name, every in zip(names, given.every, strict=True)]
    train(Settings(), places, until=given.steps, each=each, started=started)
    dist.destroy_process_group()


if __name__ == "__main__":
    _main()
