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
    """Data parallelism over replicate × shard groups; in each of them a layer is divided by tensor parallelism, and the
    layers among themselves by pipeline parallelism.

    shard: groups that divide one copy of the state between them. replicate: how many such copies run side by side
    (hybrid sharding; 1 for plain ZeRO or FSDP). zero: the ZeRO stage, which says what the sharding group divides.
    tensor: GPUs that divide each layer's matrices. sequence_parallel: those GPUs also divide, along the sequence, what
    lies between the matrices (Korthikanti et al., 2022, arXiv:2205.05198, section 4.2.2). pipeline: stages of layers.
    Raises ValueError for counts below 1, for a stage other than 0, 1, 2, 3, and for sequence_parallel with tensor 1,
    where there is nobody to divide the sequence with.
    """

    replicate: int = 1
    shard: int = 1
    zero: int = 0
    tensor: int = 1
    sequence_parallel: bool = False
    pipeline: int = 1

    def __post_init__(self):
        for name in ("replicate", "shard", "tensor", "pipeline"):
            checks.whole(name, getattr(self, name))
        checks.one_of("zero", self.zero, STAGES)
        checks.flag("sequence_parallel", self.sequence_parallel)
        if self.sequence_parallel and self.tensor == 1:
            raise ValueError("sequence_parallel is True and tensor is 1; it must be False, or tensor 2 or more: the"
                             " GPUs that share a layer divide the sequence")

    @property
    def world(self) -> int:
        """GPUs in all."""
        return self.replicate * self.shard * self.tensor * self.pipeline

    @property
    def sharded(self) -> frozenset[str]:
        """The state classes that the sharding group divides."""
        return SHARDED[self.zero]


def rows(first_dimension: int, shards: int, rank: int) -> int:
    """Rows of a tensor that rank holds when FSDP2 shards its first dimension.

    Every rank is given ⌈d/W⌉ rows in turn until none are left, so the last ranks can hold fewer, or none:
    5 rows over 4 ranks are 2, 2, 1, 0. Source: torch 2.13.0, fully_shard (torch.chunk); checked on 2 and 4 ranks.
    """
    chunk = padded_rows(first_dimension, shards)
    checks.whole("rank", rank, least=0, most=shards - 1)
    return max(0, min(chunk, first_dimension - rank * chunk))


def padded_rows(first_dimension: int, shards: int) -> int:
    """Rows that every rank's storage has room for: ⌈d/W⌉, used or not. Raises ValueError for counts below 1."""
    checks.whole("first_dimension", first_dimension)
    checks.whole("shards", shards)
    return -(-first_dimension // shards)


def stages(layers: int, pipeline: int) -> tuple[int, ...]:
    """Layers of each pipeline stage, first stage first, as even as whole layers go.

    60 layers over 8 stages are 8, 8, 8, 8, 7, 7, 7, 7: the first ones hold one more, as DeepSpeed's uniform partition
    does; Megatron-LM asks for a number of layers that the stages divide. Raises ValueError for more stages than layers.
    """
    checks.whole("layers", layers)
    checks.whole("pipeline", pipeline, most=layers)
    each, more = divmod(layers, pipeline)
    return (each + 1,) * more + (each,) * (pipeline - more)
