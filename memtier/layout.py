"""Layout: how one training state is spread over GPUs, and which rank holds which rows."""

from dataclasses import dataclass

from memtier import checks

STAGES = (0, 1, 2, 3)

# What each ZeRO stage shards (arXiv:1910.02054, section 5): each adds a class to the stage before it.
SHARDED = {
    0: frozenset(),
    1: frozenset({"master weights", "optimizer"}),
    2: frozenset({"master weights", "optimizer", "gradients"}),
    3: frozenset({"master weights", "optimizer", "gradients", "weights"}),
}


@dataclass(frozen=True)
class Layout:
    """Data parallelism over replicate × shard GPUs.

    shard: GPUs that divide one copy of the state between them. replicate: how many such copies run side by side
    (hybrid sharding; 1 for plain ZeRO or FSDP). zero: the ZeRO stage, which says what the sharding group divides.
    Raises ValueError for counts below 1 and for a stage other than 0, 1, 2, 3.
    """

    replicate: int = 1
    shard: int = 1
    zero: int = 0

    def __post_init__(self):
        checks.whole("replicate", self.replicate)
        checks.whole("shard", self.shard)
        checks.one_of("zero", self.zero, STAGES)

    @property
    def world(self) -> int:
        """GPUs in all."""
        return self.replicate * self.shard

    @property
    def sharded(self) -> frozenset[str]:
        """The state classes that the sharding group divides."""
        return SHARDED[self.zero]


def rows(first_dimension: int, shards: int, rank: int) -> int:
    """Rows of a tensor that rank holds when FSDP2 shards its first dimension.

    Every rank is given ⌈d/W⌉ rows in turn until none are left, so the last ranks can hold fewer, or none:
    5 rows over 4 ranks are 2, 2, 1, 0. Source: torch 2.13.0, fully_shard (torch.chunk); checked on 2 and 4 ranks.
    """
    checks.whole("first_dimension", first_dimension)
    checks.whole("shards", shards)
    checks.whole("rank", rank, least=0, most=shards - 1)
    chunk = padded_rows(first_dimension, shards)
    return max(0, min(chunk, first_dimension - rank * chunk))


def padded_rows(first_dimension: int, shards: int) -> int:
    """Rows that every rank's storage has room for: ⌈d/W⌉, used or not."""
    return -(-first_dimension // shards)
