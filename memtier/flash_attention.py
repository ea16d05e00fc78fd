"""FlashAttention: attention tile by tile in SRAM, so that the s × s matrices are never written to HBM.

    flash_attention.not_written("llama-3.1-8b", sequence=8192)      # bytes of scores and probabilities, all layers
    flash_attention.tile(head_dim=128, sram=192 * 1024)             # the rows and columns that one step holds in SRAM
    flash_attention.traffic(sequence=8192, head_dim=128, sram=192 * 1024)     # bytes to and from HBM, with and without

All of it is the forward pass of FlashAttention (Dao et al., 2022, arXiv:2205.14135): Algorithm 0 is attention in plain
operations, Algorithm 1 is tiled, and Theorem 2 says what each moves. Later versions choose smaller tiles and keep the
output in registers, but write as little. N tokens, d numbers a head, M numbers that SRAM holds, e bytes a number.
"""

from dataclasses import dataclass

from memtier import checks, models, weights
from memtier.inventory import Inventory
from memtier.models import Model

BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
STATISTIC = 4  # bytes of one row's log-sum-exp, in fp32


def _bytes_each(dtype: str) -> int:
    return BYTES[checks.one_of("dtype", dtype, BYTES)]


def _heads(model, batch, sequence, layer) -> tuple[Model, int, int]:
    """(model, rows of scores in one layer, layers asked for), the arguments checked."""
    model = weights.shaped(model, "attention depends on shapes")
    checks.whole("batch", batch)
    checks.whole("sequence", sequence)
    if layer is not None:
        checks.whole("layer", layer, least=0, most=model.layers - 1)
    weights.within("sequence", sequence, model)
    return model, batch * model.heads * sequence, model.layers if layer is None else 1


def not_written(model, *, batch: int = 1, sequence: int = 8192, dtype: str = "bf16",
                layer: int | None = None) -> Inventory:
    """Bytes of scores and probabilities that the forward pass does not write to HBM: 2 · e · b·A·s² a layer.

    These are S and P of the paper's Algorithm 0, both s × s for each head, in one dtype ("bf16", "fp16" or "fp32").
    transformers' own eager attention writes more: it takes the softmax in fp32 (see memtier.activations, "hf-eager").
    layer: one layer's share; left out, all layers. Where a layer has a window its matrices are written whole as well.
    Raises ValueError for a bare parameter count, and naming argument, value and what is allowed.

    >>> not_written("llama-3.1-8b", sequence=8192, layer=0).total
    8589934592
    """
    model, rows, layers = _heads(model, batch, sequence, layer)
    matrix = layers * rows * sequence * _bytes_each(dtype)
    return Inventory({"scores": matrix, "probabilities": matrix},
                     f"{model.name}, batch {batch} × {sequence} tokens, {dtype}: not written by {layers} layer"
                     f"{'s' if layers > 1 else ''}")


def written_instead(model, *, batch: int = 1, sequence: int = 8192, layer: int | None = None) -> int:
    """Bytes of the log-sum-exp, the one fp32 number a row from which the backward pass computes tiles again: 4·b·A·s a
    layer. Arguments as in `not_written`; raises ValueError as it does."""
    _, rows, layers = _heads(model, batch, sequence, layer)
    return layers * rows * STATISTIC


@dataclass(frozen=True)
class Tile:
    """What one step of Algorithm 1 holds in SRAM.

    rows: of queries, output and scores. columns: of keys and values. nbytes: blocks of queries, keys, values and
    output, and the scores between them. sram: bytes there are.
    """

    rows: int
    columns: int
    nbytes: int
    sram: int

    @property
    def fits(self) -> bool:
        """Do all five blocks fit? The paper's sizes give four of them a quarter each; where rows = d is close to
        columns, the scores are one block too many, and a kernel must take smaller tiles."""
        return self.nbytes <= self.sram


def tile(*, head_dim: int, sram: int, dtype: str = "bf16") -> Tile:
    """Block sizes of Algorithm 1, line 1: columns Bc = ⌈M/4d⌉, rows Br = min(⌈M/4d⌉, d).

    head_dim: d. sram: bytes of it, of one streaming multiprocessor, at least d numbers (Theorem 2: d ≤ M). M counts
    numbers of dtype. Raises ValueError naming argument, value and what is allowed.

    >>> tile(head_dim=64, sram=192 * 1024)
    Tile(rows=64, columns=384, nbytes=163840, sram=196608)
    """
    each = _bytes_each(dtype)
    checks.whole("head_dim", head_dim, most=models.LARGEST)
    checks.whole("sram", sram, least=head_dim * each)
    columns = -(-(sram // each) // (4 * head_dim))
    rows = min(columns, head_dim)
    held = 2 * rows * head_dim + 2 * columns * head_dim + rows * columns
    return Tile(rows, columns, held * each, sram)


@dataclass(frozen=True)
class Traffic:
    """Bytes read from and written to HBM by one layer's attention, forward: in plain operations, and tiled."""

    standard: int
    flash: int

    @property
    def ratio(self) -> float:
        """How many times as much plain attention moves."""
        return self.standard / self.flash


def traffic(*, sequence: int, head_dim: int, sram: int, dtype: str = "bf16", heads: int = 1, batch: int = 1) -> Traffic:
    """HBM traffic of the two algorithms, counted line by line; Theorem 2 says how they grow.

    standard   Algorithm 0: Q and K read, S written; S read, P written; P and V read, O written: 4Nd + 4N² numbers,
               Θ(Nd + N²) in the theorem
    flash      Algorithm 1: O and two statistics a row written at the start; K and V read once; and in each of ⌈N/Bc⌉
               outer steps Q, O and the statistics read, O and the statistics written: 3Nd + 2N + ⌈N/Bc⌉(3Nd + 4N),
               Θ(N²d²/M) in the theorem

    sequence: N. head_dim: d. sram: bytes, as in `tile`. heads, batch: how many times one head's attention is done.
    A causal mask, which lets both skip nearly half, is not counted.
    Raises ValueError naming argument, value and what is allowed.
    """
    each = _bytes_each(dtype)
    n, d = checks.whole("sequence", sequence), checks.whole("head_dim", head_dim, most=models.LARGEST)
    times = checks.whole("heads", heads) * checks.whole("batch", batch) * each
    steps = -(-n // tile(head_dim=head_dim, sram=sram, dtype=dtype).columns)
    return Traffic(standard=times * (4 * n * d + 4 * n * n),
                   flash=times * (3 * n * d + 2 * n + steps * (3 * n * d + 4 * n)))
