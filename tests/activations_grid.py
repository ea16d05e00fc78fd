"""All the checks of memtier.activations against torch; tests/test_lab_activations.py runs a part of them.

    python tests/activations_grid.py [cells a family] [seed] [family …]

saved:     every tensor autograd keeps: on random small configurations of each family in real tensors (every eighth in
           fake ones too), and on a published one at full size in fake tensors
live:      bytes alive after the forward pass, selective recomputation and all three losses included
peak:      the fullest moment of the step, likewise; "within 0.1 %" is the claim, what is outside is listed

Every difference is listed, with what differs.
"""

import platform
import sys
import time
import warnings

import torch
import transformers

from memtier import activations, models
from memtier.lab import activations as lab
from memtier.lab import cells

CLOSE = 0.001  # of the peak
PUBLISHED = ({}, {"recompute": "full", "sequence": 513}, {"batch": 2, "dtype": "fp32"})


def check_saved(model, real=False, **how) -> list[str]:
    """What differs between the formula's tensors and torch's."""
    return lab.compare(activations.tensors(model, **how), lab.saved(model, real=real, **how))


def check_live(model, real=False, **how) -> tuple[int, float | None]:
    """Bytes by which `live` is off, and the fraction by which `peak` is (None where no peak is predicted)."""
    measured = lab.live(model, real=real, **how)
    off = activations.live(model, **how).total - measured.after
    if how["stack"].endswith("loop"):
        return off, None
    return off, activations.peak(model, **how).total / measured.peak - 1


class Count:
    """Checks done, how many held, and what did not."""

    def __init__(self):
        self.done = self.held = 0
        self.residuals: list[str] = []

    def add(self, held: bool, residual: str) -> None:
        self.done += 1
        self.held += held
        self.residuals += [] if held else [residual]

    def __str__(self):
        return f"{self.held:5} of {self.done:4}"


def small(family: str, count: int, seed: int) -> tuple[Count, Count, Count, float]:
    """Saved tensors of random cells; live bytes and peaks of a quarter as many with usual proportions."""
    exact, alive, close, worst = Count(), Count(), Count(), 0.0
    for number, cell in enumerate(cells.cells(family, count, seed)):
        differences = check_saved(cell.config, real=True, **cell.how)
        if number % 8 == 0 and cell.fakeable:
            differences += check_saved(cell.config, **cell.how)
        exact.add(not differences, f"saved {cell}\n        " + "\n        ".join(differences))
    for number, cell in enumerate(cells.usual(family, -(-count // 4), seed)):
        capped = models.from_config(cell.config).logit_softcap is not None  # only the dense loss caps logits
        loss = {"loss": "dense" if capped else activations.LOSSES[number // 3 % 3], "chunks": (1, 2, 3, 8)[number % 4]}
        off, apart = check_live(cell.config, real=True, **cell.how, **loss)
        alive.add(off == 0, f"live {off:+,} bytes: {loss} {cell}")
        if apart is not None:
            close.add(abs(apart) <= CLOSE, f"peak {apart:+.2%}: {loss} {cell}")
            worst = max(worst, abs(apart))
    return exact, alive, close, worst


def published(family: str, name: str) -> Count:
    """The published architecture at full size, in fake tensors; they cannot run experts in fp32 or in a loop."""
    exact = Count()
    for extra in PUBLISHED:
        for stack in activations.stacks(name):
            how = {"batch": 1, "sequence": 1024, "stack": stack, "recompute": "none", "dtype": "bf16"} | extra
            if stack.endswith("loop") or (how["dtype"] == "fp32" and family in cells.SPARSE):
                continue
            differences = check_saved(name, **how)
            exact.add(not differences, f"saved {name} {how}\n        " + "\n        ".join(differences))
    return exact


def main(count: int = 70, seed: int = 0, *families: str) -> int:
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    families, started, counts = families or models.FAMILIES, time.time(), []
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, Python {platform.python_version()},"
          f" {time.strftime('%Y-%m-%d')}, seed {seed}")
    print("saved: equal to the byte; live: equal to the byte; peak: within 0.1 %, and the worst")
    for family in families:
        exact, alive, close, worst = small(family, count, seed)
        counts += [exact, alive, close]
        print(f"{family:12} saved {exact}   live {alive}   peak {close} {worst:8.3%}", flush=True)
    for family in families:
        name = cells.published()[family]
        counts.append(published(family, name))
        print(f"{family:12} saved {counts[-1]}   {name} at full size", flush=True)
    failed = sum(each.done - each.held for each in counts)
    print(f"{sum(each.done for each in counts)} checks, {failed} not met, in {time.time() - started:.0f} s")
    print("\n".join(["residuals:", *(f"    {each}" for count in counts for each in count.residuals or [])]))
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(*(int(each) for each in sys.argv[1:3]), *sys.argv[3:])))
