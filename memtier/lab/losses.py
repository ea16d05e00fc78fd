"""Three ways from a language model's last hidden states to its loss, in torch; memtier.activations tells their bytes.

dense     transformers' own: logits of all tokens, their fp32 copy and its log-softmax
chunked   the tokens in pieces, each computed again in the backward pass: one piece's logits at a time
fused     the tokens in pieces, each piece's gradients computed at once in the forward pass: no logits are kept, but the
          gradients of the hidden states and of the head are (as Liger's fused linear cross entropy does it)

They give the same loss and the same gradients (tests/test_lab_losses.py). Not exercised on a GPU.
"""

import functools
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

IGNORED = -100  # the label that is no token's


def _targets(labels: torch.Tensor) -> torch.Tensor:
    """Each token's next one, the last of a row has none; flat."""
    return functional.pad(labels, (0, 1), value=IGNORED)[..., 1:].reshape(-1)


def _piece(rows, weight, bias, target):
    logits = functional.linear(rows, weight, bias).float()
    return functional.cross_entropy(logits, target, reduction="sum", ignore_index=IGNORED)


def chunked(hidden: torch.Tensor, head: nn.Linear, labels: torch.Tensor, chunks: int) -> torch.Tensor:
    """The mean loss of hidden states (batch, sequence, width) against labels, in `chunks` pieces."""
    rows, targets = hidden.reshape(-1, hidden.shape[-1]), _targets(labels)
    size = -(-len(rows) // chunks)
    total = sum(checkpoint(_piece, some, head.weight, head.bias, target, use_reentrant=False, preserve_rng_state=False)
                for some, target in zip(rows.split(size), targets.split(size), strict=True))
    return total / (labels.numel() - len(labels))


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, weight, targets, count, size):
        total = torch.zeros((), dtype=torch.float32)
        row_gradients, head_gradient = torch.empty_like(rows), torch.zeros_like(weight)
        for start in range(0, len(rows), size):
            some, target = rows[start: start + size], targets[start: start + size]
            slope = torch.log_softmax(functional.linear(some, weight).float(), -1)
            total += functional.nll_loss(slope, target, reduction="sum", ignore_index=IGNORED)
            used = (target != IGNORED).unsqueeze(-1)
            slope.exp_().scatter_add_(1, target.clamp(min=0).unsqueeze(-1), -used.float()).mul_(used).div_(count)
            slope = slope.to(rows.dtype)
            torch.mm(slope, weight, out=row_gradients[start: start + size])
            head_gradient.addmm_(slope.t(), some)
            del slope, used
        ctx.save_for_backward(row_gradients, head_gradient)
        return total / count

    @staticmethod
    def backward(ctx, upstream):
        row_gradients, head_gradient = ctx.saved_tensors
        return row_gradients.mul_(upstream), head_gradient.mul_(upstream), None, None, None


def fused(hidden: torch.Tensor, head: nn.Linear, labels: torch.Tensor, chunks: int) -> torch.Tensor:
    """The same as `chunked`; the head has no bias."""
    rows = hidden.reshape(-1, hidden.shape[-1])
    return _Fused.apply(rows, head.weight, _targets(labels), labels.numel() - len(labels), -(-len(rows) // chunks))


LOSSES = {"chunked": chunked, "fused": fused}


def put(network: nn.Module, loss: str, chunks: int) -> None:
    """Make a transformers language model's forward pass end in one of LOSSES; it then returns the loss alone."""

    def forward(input_ids, labels, **rest):
        hidden = network.base_model(input_ids=input_ids, **rest)[0]
        return SimpleNamespace(loss=LOSSES[loss](hidden, network.get_output_embeddings(), labels, chunks))

    network.forward = functools.wraps(network.forward)(forward)
