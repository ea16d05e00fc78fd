"""Checkpoints: what a run must save to go on, and how long the writing takes."""

from memtier import checks, models, optimizer_state, recipes, tiers
from memtier.inventory import Inventory

CONTENTS = ("resumable", "weights")


def inventory(model, *, recipe, contents: str = "resumable") -> Inventory:
    """Bytes of one checkpoint, written once for the whole job, however many ranks share the writing.

    contents="resumable": weights, master weights and optimizer state, so that training continues as if nothing had
    happened; gradients are not saved, they are made afresh. For bf16-adam that is 2 + 4 + 8 = 14 bytes a parameter.
    contents="weights": the weights alone, enough to serve the model.
    Raises ValueError for an unknown recipe or contents.

    >>> inventory(70e9, recipe="bf16-adam").total
    980000000000.0
    """
    checks.one_of("contents", contents, CONTENTS)
    model, recipe = models.resolve(model), recipes.get(recipe)
    state = optimizer_state.inventory(model, recipe=recipe)
    left_out = {"gradients"} if contents == "resumable" else set(state) - {"weights"}
    kept = {name: nbytes for name, nbytes in state.items() if name not in left_out}
    return Inventory(kept, f"{contents} checkpoint, {recipe.title}")


def write_time(nbytes: float, *, to, writers: int = 1) -> float:
    """Seconds to write nbytes to a tier, a tier's name, or a rate in bytes a second.

    writers: nodes that write at once, each an equal share. They multiply a rate and a node-local tier such as NVMe;
    a shared tier's figure is already the aggregate, so it stays as it is.
    Raises ValueError for bad arguments and for a tier whose write rate the ledger does not know.

    >>> round(write_time(0.98e12, to=30e9, writers=64), 2)
    0.51
    """
    checks.not_negative("nbytes", nbytes)
    checks.whole("writers", writers)
    if isinstance(to, (int, float)):
        return tiers.transfer_time(nbytes, checks.positive("to", to), streams=writers)
    tier = tiers.get(to)
    return tier.write_time(nbytes, streams=1 if tier.shared else writers)
