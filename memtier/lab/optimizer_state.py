"""What torch really holds after one training step: every state tensor, in one process and on each rank of FSDP2.

Seen with torch 2.13.0, transformers 5.24.0 and bitsandbytes 0.50.2 on a CPU, in eager mode; not exercised on a GPU.
Bytes are counted by storage: two tensors over one storage count once. Buffers (RoPE's frequencies) and
activations are not state and are left out.

Under torchrun this file is one rank, with the default model and recipe, and prints what it holds:

    torchrun --standalone --nproc-per-node 4 -m memtier.lab.optimizer_state
"""

import contextlib
import importlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from memtier import checks, models, recipes
from memtier.inventory import Inventory
from memtier.lab import processes

SMALL = {"model_type": "llama", "vocab_size": 1000, "hidden_size": 256, "intermediate_size": 683,
         "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False}
LARGEST = 50_000_000  # parameters: a laptop's lab; the formulas answer for what is larger
CLASSES = ("weights", "gradients", "master weights", "optimizer", "step counters", "other")
DTYPES = {2: torch.bfloat16, 4: torch.float32}  # bytes an element → the type a recipe means
LOCAL_ROWS = ("adafactor", "8-bit blocks")  # rules whose optimizers refuse FSDP2's DTensors, so each rank runs its own
_DEFAULT_JOB = {"world": 2, "config": None, "recipe": "bf16-adam", "replicate": 1, "tokens": 16, "seed": 0}
_RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class StateTensor:
    """One tensor that is kept between steps. nbytes: of its storage; 0 when an earlier tensor shares it."""

    kind: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True)
class Step:
    """What one process holds after one step: all state tensors, and the loss of that step."""

    recipe: str
    tensors: tuple[StateTensor, ...]
    loss: float

    @property
    def inventory(self) -> Inventory:
        """Bytes by class, in the names that optimizer_state.inventory uses; absent classes left out."""
        return _inventory(((each.kind, each.nbytes) for each in self.tensors), f"torch, {self.recipe}, measured")

    def table(self, only: str = "") -> str:
        """The tensors whose name contains `only`, a line each: class, name, type, shape, bytes."""
        chosen = [each for each in self.tensors if only in each.name]
        rows = [("class", "tensor", "type", "shape", "bytes")]
        rows += [(each.kind, each.name, each.dtype, "×".join(map(str, each.shape)) or "scalar", f"{each.nbytes:,}")
                 for each in chosen]
        return _aligned(rows, right=(4,))


@dataclass(frozen=True)
class Rank:
    """What one of `world` processes holds after one FSDP2 step.

    held: bytes of the rows it owns. storage: bytes of the storages behind them; FSDP2 pads weights and gradients.
    gathered: bytes of whole parameters alive at four moments: "forward" and "backward" (the most in any layer),
    "between" (forward done, backward not begun) and "after" (backward done). In the backward pass FSDP2 is already
    gathering the layer that comes next into a buffer; that is no parameter yet and not counted.
    """

    recipe: str
    world: int
    rank: int
    held: Inventory
    storage: Inventory
    gathered: dict[str, int]


def beside(predicted: Inventory, measured: Inventory) -> str:
    """Predicted and measured bytes of each class side by side, and whether they are equal."""
    rows = [("", "predicted", "measured", "")]
    entries = [(name, predicted.get(name, 0), measured.get(name, 0)) for name in dict.fromkeys([*predicted, *measured])]
    for name, left, right in [*entries, ("total", predicted.total, measured.total)]:
        verdict = "equal" if left == right else f"{right - left:+,.0f} bytes"
        rows.append((name, f"{left:,.0f}", f"{right:,.0f}", verdict))
    return _aligned(rows, right=(1, 2))


# One process


def mixed_precision_step(config=None, *, recipe: str = "bf16-adam", tokens: int = 16, seed: int = 0) -> Step:
    """Train a small model for one step as `recipe` says and list every state tensor torch then holds.

    Gradients are still there, as between a step and zero_grad.
    config: a Hugging Face config as a dict, a path to its config.json, or None for SMALL; random weights.
    tokens: length of the one sequence it learns from. seed: of the weights and the tokens.
    Raises ValueError for a recipe that cannot be run here, and for a model of more than LARGEST parameters;
    ImportError when recipe is "adam-8bit" and bitsandbytes is not installed.
    """
    plan = _plan(recipe, sharded=False)
    checks.whole("tokens", tokens, least=2)
    model = _model(_config(config), plan, seed)
    trained = _trained(model)
    sums = _sum_gradients(model, plan)
    masters = {name: nn.Parameter(p.detach().float()) if plan.master else p for name, p in trained.items()}
    optimizers = _optimizers(plan, masters, _hidden_matrices(model))
    loss = _backward(model, tokens, seed)
    gradients = {f"{name}.grad": p.grad for name, p in trained.items() if p.grad is not None}
    gradients |= {f"{name}.fp32_grad": total for name, total in sums.items()}
    _update(optimizers, {name: (p, masters[name], sums.get(name, p.grad)) for name, p in trained.items()})

    seen: set[int] = set()
    listed = _listed("weights", dict(model.named_parameters()), seen)
    listed += _listed("gradients", gradients, seen)
    listed += _listed("master weights", {f"{name}.master": m for name, m in masters.items() if plan.master}, seen)
    for kind, tensors in _optimizer_tensors(optimizers, masters).items():
        listed += _listed(kind, tensors, seen)
    return Step(plan.name, tuple(listed), loss)


class _ByTensor(torch.optim.Optimizer):
    """An optimizer that says only how one tensor is updated."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.update(p, self.state[p], group)


class Lion(_ByTensor):
    """Lion in its few lines: one momentum, and a step by the sign (Chen et al., 2023, arXiv:2302.06675, alg. 2)."""

    def __init__(self, params, lr: float = 1e-4, betas=(0.9, 0.99), weight_decay: float = 0.01):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    def update(self, p, state: dict, group: dict) -> None:
        momentum = state.setdefault("exp_avg", torch.zeros_like(p))
        first, second = group["betas"]
        direction = momentum.mul(first).add(p.grad, alpha=1 - first).sign_()
        p.mul_(1 - group["lr"] * group["weight_decay"]).add_(direction, alpha=-group["lr"])
        momentum.mul_(second).add_(p.grad, alpha=1 - second)


class ShortMomentsAdamW(_ByTensor):
    """AdamW that keeps its two moments in bf16 and computes in fp32, as DeepSeek-V3 does (arXiv:2412.19437, 3.3)."""

    def __init__(self, params, lr: float = 1e-3, betas=(0.9, 0.95), eps: float = 1e-8, weight_decay: float = 0.1):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def update(self, p, state: dict, group: dict) -> None:
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = torch.zeros_like(p, dtype=torch.bfloat16)
            state["exp_avg_sq"] = torch.zeros_like(p, dtype=torch.bfloat16)
        state["step"] += 1
        steps, (first, second) = state["step"].item(), group["betas"]
        mean = state["exp_avg"].float().mul_(first).add_(p.grad, alpha=1 - first)
        square = state["exp_avg_sq"].float().mul_(second).add_(p.grad.square(), alpha=1 - second)
        spread = square.div(1 - second**steps).sqrt_().add_(group["eps"])
        p.mul_(1 - group["lr"] * group["weight_decay"])
        p.sub_(mean.div(1 - first**steps).div_(spread), alpha=group["lr"])
        state["exp_avg"].copy_(mean)
        state["exp_avg_sq"].copy_(square)


def _plan(recipe, sharded: bool) -> recipes.Recipe:
    """The recipe, if the lab can run it."""
    plan = recipes.get(recipe)
    if plan.gradients == 0:
        raise ValueError(f"recipe is {plan.name!r}; it trains nothing, so there is no step to measure")
    if plan.name == "fsdp2-adam" and not sharded:
        raise ValueError("recipe is 'fsdp2-adam'; it is what FSDP2 keeps, so measure it with fsdp_step")
    if sharded and plan.gradients != plan.weights:
        raise ValueError(f"recipe is {plan.name!r}; FSDP2 keeps gradients in the weights' type and no other copy")
    return plan


def _named(plan: recipes.Recipe) -> str:
    """The name under which another process finds the recipe."""
    if recipes.RECIPES.get(plan.name) != plan:
        raise ValueError(f"recipe is {plan!r}; several processes measure the recipes that have a name, which are "
                         + ", ".join(recipes.names()))
    return plan.name


def _config(config) -> dict:
    """The config as a dict, of a family memtier knows and small enough for a laptop. Raises ValueError otherwise."""
    if config is None:
        config = SMALL
    elif not isinstance(config, dict):
        config = json.loads(Path(config).read_text(encoding="utf-8"))
    parameters = models.from_config(config).parameters
    if parameters > LARGEST:
        raise ValueError(f"config is a model of {parameters:,} parameters; the lab takes at most {LARGEST:,}")
    return config


def _model(config: dict, plan: recipes.Recipe, seed: int) -> nn.Module:
    """The model of that config with random weights in the recipe's type, adapters added."""
    from transformers import AutoConfig, AutoModelForCausalLM  # seconds to import: only when a model is built

    settings = dict(config)
    parsed = AutoConfig.for_model(settings.pop("model_type"), **settings)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(parsed, dtype=DTYPES[plan.weights])
    if plan.adapters is not None:
        _add_adapters(model, plan)
    return model


def _add_adapters(model: nn.Module, plan: recipes.Recipe) -> None:
    """Freeze the model and give every target matrix a pair of low-rank adapters (arXiv:2106.09685)."""
    model.requires_grad_(False)
    endings = tuple(target.removesuffix(".weight") for target in plan.adapters.targets)
    targets = [module for name, module in model.named_modules() if name.endswith(endings)]
    if not targets:
        raise ValueError(f"recipe is {plan.name!r}; none of the model's matrices is named {', '.join(endings)}")
    for module in targets:
        kind = {"bias": False, "dtype": DTYPES[plan.weights]}
        module.lora_A = nn.Linear(module.in_features, plan.adapters.rank, **kind)
        module.lora_B = nn.Linear(plan.adapters.rank, module.out_features, **kind)
        nn.init.zeros_(module.lora_B.weight)
        module.register_forward_hook(lambda m, inputs, output: output + m.lora_B(m.lora_A(inputs[0])))


def _trained(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def _hidden_matrices(model: nn.Module) -> set[str]:
    """Names of the matrices that Muon takes: two-dimensional, and neither the embedding nor the head."""
    ends = {id(module.weight) for module in (model.get_input_embeddings(), model.get_output_embeddings())}
    ends |= {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    return {name for name, p in model.named_parameters() if p.ndim == 2 and id(p) not in ends}


def _sum_gradients(model: nn.Module, plan: recipes.Recipe) -> dict[str, torch.Tensor]:
    """Add each bf16 gradient to an fp32 sum as it appears, where the recipe keeps one; the dict fills in backward."""
    sums: dict[str, torch.Tensor] = {}
    if plan.weights == 2 and plan.gradients > 2:
        for name, p in _trained(model).items():

            def add(p, name=name):
                sums[name] = p.grad.float() if name not in sums else sums[name].add_(p.grad)
                if plan.gradients == 4:  # the bf16 gradient was only passing through
                    p.grad = None

            p.register_post_accumulate_grad_hook(add)
    return sums


def _backward(model: nn.Module, tokens: int, seed: int) -> float:
    """The loss of one random sequence, after its backward pass."""
    ids = torch.randint(model.config.vocab_size, (1, tokens), generator=torch.Generator().manual_seed(seed))
    loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    return loss.item()


def _optimizers(plan: recipes.Recipe, masters: dict, hidden: set[str]) -> list[torch.optim.Optimizer]:
    """The recipe's optimizer over the tensors it updates; two for Muon, which leaves what it refuses to AdamW."""
    everything = list(masters.values())
    if plan.rule == "muon":
        taken = [p for name, p in masters.items() if name in hidden]
        left = [p for name, p in masters.items() if name not in hidden]
        return [torch.optim.Muon(taken, lr=1e-3), torch.optim.AdamW(left, lr=1e-3)]
    if plan.rule == "8-bit blocks":
        return [_eight_bit()(everything, lr=1e-3)]
    if plan.rule == "adafactor":
        return [torch.optim.Adafactor(everything)]
    if plan.name == "lion":
        return [Lion(everything)]
    if plan.name == "sgd-momentum":
        return [torch.optim.SGD(everything, lr=1e-3, momentum=0.9)]
    if plan.optimizer == 4:
        return [ShortMomentsAdamW(everything)]
    return [torch.optim.AdamW(everything, lr=1e-3)]


def _eight_bit():
    try:
        from bitsandbytes.optim import AdamW8bit  # 3 s to import, so only where it is used
    except ImportError as error:
        raise ImportError("recipe 'adam-8bit' is measured with bitsandbytes: pip install bitsandbytes==0.50.2, "
                          "or -r requirements.txt for the whole course") from error
    return AdamW8bit


def _update(optimizers: list, triples: dict) -> None:
    """Update tensor by tensor, so that no second copy of all gradients exists, and copy each result to its weight.

    triples: name → (weight, what the optimizer updates, gradient). An optimizer passes over tensors without a
    gradient: giving one at a time updates one at a time.
    """
    for _, master, _ in triples.values():
        master.grad = None
    for weight, master, gradient in triples.values():
        master.grad = gradient.to(master.dtype)
        for optimizer in optimizers:
            optimizer.step()
        master.grad = None
        if weight is not master:
            with torch.no_grad():
                weight.copy_(master)


def _optimizer_tensors(optimizers: list, masters: dict) -> dict[str, dict[str, torch.Tensor]]:
    """Class → name → tensor of what the optimizers remember; a Python number is not a tensor.

    bitsandbytes' tables of 8-bit codes belong to no parameter: all tensors share the two, so they count as "other".
    """
    names = {id(p): name for name, p in masters.items()}
    kept: dict[str, dict] = {"optimizer": {}, "step counters": {}, "other": {}}
    for optimizer in optimizers:
        for p, state in optimizer.state.items():
            for key, value in state.items():
                if torch.is_tensor(value):
                    kind = {"step": "step counters", "qmap1": "other", "qmap2": "other"}.get(key, "optimizer")
                    kept[kind][f"{names[id(p)]}.{key}"] = value
    return kept


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that lives in this process."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _listed(kind: str, tensors: dict, seen: set[int]) -> list[StateTensor]:
    """A StateTensor each; a storage met before counts 0."""
    listed = []
    for name, tensor in tensors.items():
        storage = _local(tensor).untyped_storage()
        nbytes = 0 if storage._cdata in seen else storage.nbytes()
        seen.add(storage._cdata)
        dtype = str(tensor.dtype).removeprefix("torch.")
        listed.append(StateTensor(kind, name, dtype, tuple(_local(tensor).shape), nbytes))
    return listed


def _inventory(entries: Iterable[tuple[str, int]], title: str) -> Inventory:
    """Entries added up by class, in the order of CLASSES, without the classes that hold nothing."""
    total = dict.fromkeys(CLASSES, 0)
    for kind, nbytes in entries:
        total[kind] += nbytes
    return Inventory({kind: nbytes for kind, nbytes in total.items() if nbytes}, title)


def _aligned(rows: list[tuple[str, ...]], right: tuple[int, ...]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.rjust(width) if column in right else cell.ljust(width)
                               for column, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
                     for row in rows)


# Several processes


def fsdp_step(world: int = 2, config=None, *, recipe: str = "bf16-adam", replicate: int = 1, tokens: int = 16,
              seed: int = 0, timeout: float = 300) -> tuple[Rank, ...]:
    """Train one step with FSDP2 in `world` real processes over gloo; what each rank then holds, in order of rank.

    torchrun's own launcher starts the processes. One fully_shard group for each decoder layer and one for the rest,
    resharded after each forward. Recipes:
    "fp32-adam"; "fsdp2-adam" (fp32 shards, bf16 gathered); and those with bf16 weights and gradients, whose masters
    are fp32 DTensors. torch.optim.Adafactor and bitsandbytes refuse DTensors (torch 2.13.0), so those two update
    each rank's own rows; Adafactor's column statistics are then those of the rank's rows, another algorithm, and it
    fails on a rank without rows. torch.optim.Muon fails on a matrix of fewer rows than ranks.

    replicate: copies side by side; each is sharded over world / replicate ranks (hybrid sharding).
    timeout: seconds, then all processes are killed. Raises ValueError for arguments as mixed_precision_step does,
    TimeoutError after `timeout`, RuntimeError with the processes' last words when one fails.
    """
    return fsdp_steps([{"world": world, "config": config, "recipe": recipe, "replicate": replicate, "tokens": tokens,
                        "seed": seed}], timeout=timeout)[0]


def fsdp_steps(jobs: list[dict], *, timeout: float = 300) -> list[tuple[Rank, ...]]:
    """Several fsdp_step one after the other; those of the same world by the same processes, and all import only once.

    jobs: fsdp_step's arguments but timeout, each a dict; what is left out has fsdp_step's default.
    """
    checks.positive("timeout", timeout)
    whole = [_DEFAULT_JOB | job for job in jobs]
    for job in whole:
        for name in job:
            checks.one_of("a job's argument", name, _DEFAULT_JOB)
        checks.whole("world", job["world"], most=8)
        checks.whole("replicate", job["replicate"])
        if job["world"] % job["replicate"]:
            raise ValueError(f"replicate is {job['replicate']}; it must divide world, which is {job['world']}")
        checks.whole("tokens", job["tokens"], least=2)
        job["recipe"] = _named(_plan(job["recipe"], sharded=True))
        job["config"] = _config(job["config"])
    with tempfile.TemporaryDirectory(prefix="memtier-fsdp-") as folder:
        asked, answered = Path(folder, "jobs.json"), Path(folder, "ranks.json")
        asked.write_text(json.dumps(whole), encoding="utf-8")
        _run([sys.executable, "-m", "memtier.lab.optimizer_state", str(asked), str(answered)], timeout)
        results = json.loads(answered.read_text(encoding="utf-8"))
    return [tuple(_from_json(rank) for rank in ranks) for ranks in results]


def _run(command: list[str], timeout: float) -> None:
    """Run the launcher in a process group of its own, so that nothing of it outlives this call.

    A fresh interpreter works from a notebook too, where there is no __main__ file that processes could import.
    """
    root = str(Path(__file__).parents[2])  # the folder that holds memtier, where it is not installed
    environment = {name: value for name, value in os.environ.items() if name not in _RANK_VARIABLES}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH")]))
    environment["OMP_NUM_THREADS"] = "1"  # the ranks share a small machine's cores
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=words, stderr=words,
                                   start_new_session=True)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"timeout is {timeout!r} seconds; the FSDP2 processes had not finished by then and "
                               "were stopped") from None
        finally:
            _kill_group(process)
        if code:
            words.seek(0)
            last = words.read().decode(errors="replace").strip().splitlines()[-30:]
            raise RuntimeError("the FSDP2 processes failed:\n" + "\n".join(last))


def _kill_group(process: subprocess.Popen) -> None:
    """End the process and every process it started, also when the caller was interrupted."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError):  # all of them have ended
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _rank(jobs: list[dict]) -> list[dict]:
    """One rank's work for jobs of one world: what it holds after each, as dicts that JSON can carry."""
    torch.set_num_threads(1)
    processes.use_loopback()
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    try:
        return [_to_json(_measure_rank(**job)) for job in jobs]
    finally:
        dist.destroy_process_group()


def _measure_rank(world: int, config: dict, recipe: str, replicate: int, tokens: int, seed: int) -> Rank:
    plan, rank = _plan(recipe, sharded=True), dist.get_rank()
    model = _model(config, plan, seed)
    hidden = _hidden_matrices(model)
    layers = next(module for module in model.modules() if isinstance(module, nn.ModuleList))
    gathered = _watch_gathered(model, layers)
    short = plan.gathered == 2
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16 if short else None, reduce_dtype=torch.float32)
    shape, names = ((world,), ("shard",)) if replicate == 1 else ((replicate, world // replicate),
                                                                  ("replicate", "shard"))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    for module in [*layers, model]:
        fully_shard(module, mesh=mesh, mp_policy=policy)

    part = _local if plan.rule in LOCAL_ROWS else (lambda tensor: tensor)
    trained = _trained(model)
    masters = {name: nn.Parameter(part(p.detach()).float()) if plan.master else p for name, p in trained.items()}
    optimizers = _optimizers(plan, masters, hidden)
    _backward(model, tokens, seed)
    gathered["after"] = _whole_bytes(model)
    gradients = {name: p.grad for name, p in trained.items()}
    _update(optimizers, {name: (part(p), masters[name], part(gradients[name])) for name, p in trained.items()})

    kept = {"weights": dict(model.named_parameters()), "gradients": gradients,
            "master weights": masters if plan.master else {}} | _optimizer_tensors(optimizers, masters)
    seen: set[int] = set()
    listed = [each for kind, tensors in kept.items() for each in _listed(kind, tensors, seen)]
    distinct = {id(tensor): (kind, _local(tensor).nbytes) for kind, tensors in kept.items()
                for tensor in tensors.values()}
    title = f"torch FSDP2, {plan.name}, rank {rank} of {world}"
    return Rank(plan.name, world, rank, _inventory(distinct.values(), f"{title}, rows held"),
                _inventory(((each.kind, each.nbytes) for each in listed), f"{title}, storage"), gathered)


def _whole_bytes(model: nn.Module) -> int:
    """Bytes of the parameters that are whole at this moment: while FSDP2 has one gathered, it is a plain tensor."""
    storages = {}
    for p in model.parameters():
        if not isinstance(p, DTensor):
            storages[p.untyped_storage()._cdata] = p.untyped_storage().nbytes()
    return sum(storages.values())


def _watch_gathered(model: nn.Module, layers: nn.ModuleList) -> dict[str, int]:
    """Look from inside each layer, in both passes, and after the forward; the dict fills as the step runs."""
    gathered = {"forward": 0, "between": 0, "backward": 0}

    def look(moment):
        gathered[moment] = max(gathered[moment], _whole_bytes(model))

    for layer in layers:
        inside = [child for child in layer.children() if any(True for _ in child.parameters())][-1]
        inside.register_forward_hook(lambda *_: look("forward"))
        inside.register_full_backward_hook(lambda *_: look("backward"))
    model.register_forward_hook(lambda *_: look("between"))
    return gathered


def _to_json(rank: Rank) -> dict:
    return {"recipe": rank.recipe, "world": rank.world, "rank": rank.rank, "held": rank.held.to_dict(),
            "storage": rank.storage.to_dict(), "gathered": rank.gathered}


def _from_json(data: dict) -> Rank:
    return Rank(data["recipe"], data["world"], data["rank"], Inventory.from_dict(data["held"]),
                Inventory.from_dict(data["storage"]), data["gathered"])


def _launch(world: int, jobs: list[dict]) -> list[list[dict]]:
    """Fork `world` ranks from this process with torchrun's own launcher, on a free port; each job's ranks."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    settings = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=world, run_id=f"memtier-{os.getpid()}", max_restarts=0,
        rdzv_backend="c10d", rdzv_endpoint="127.0.0.1:0", local_addr="127.0.0.1", monitor_interval=0.1,
        start_method="fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn")
    answers = elastic_launch(settings, _rank)(jobs)
    return [list(ranks) for ranks in zip(*(answers[rank] for rank in sorted(answers)), strict=True)]


def _import_for(jobs: list[dict]) -> None:
    """Import what the ranks will need, before they are forked: imports cost more than the steps."""
    for job in jobs:
        plan = recipes.get(job["recipe"])
        with torch.device("meta"):  # a model without storage: only the code behind it is wanted
            _model(job["config"], plan, job["seed"])
        if plan.rule == "8-bit blocks":
            _eight_bit()
    importlib.import_module("torch._dynamo")  # every optimizer does when it is made


def _main(arguments: list[str]) -> None:
    if "LOCAL_RANK" in os.environ:  # started by torchrun: this is one rank of one job
        (rank,) = _rank([_DEFAULT_JOB | {"world": int(os.environ["WORLD_SIZE"]), "config": SMALL}])
        print(f"{_from_json(rank).held}\n", flush=True)
        return
    asked, answered = map(Path, arguments)
    jobs = json.loads(asked.read_text(encoding="utf-8"))
    _import_for(jobs)
    results = {}
    for world in sorted({job["world"] for job in jobs}):
        numbers = [number for number, job in enumerate(jobs) if job["world"] == world]
        results |= zip(numbers, _launch(world, [jobs[number] for number in numbers]), strict=True)
    answered.write_text(json.dumps([results[number] for number in range(len(jobs))]), encoding="utf-8")


if __name__ == "__main__":
    _main(sys.argv[1:])
