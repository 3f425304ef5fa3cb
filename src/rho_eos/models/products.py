"""Large products in float32 on a CPU by oneDNN, where that is faster than torch's own way.

torch multiplies float32 with MKL (or what else it was built with) and 16-bit numbers with oneDNN.
Which of them is faster depends on who made the CPU: on an AMD with AVX-512 oneDNN took less than
half the time. So both are tried once a model is loaded, on a piece of each of its large weights,
and the faster one is used. The weight is read as it lies, so it may still be trained, and there is
no second copy.
"""

import time
from collections.abc import Iterator
from functools import cache

import torch
from torch import nn
from torch.nn.functional import linear

from rho_eos.models.widening import WideLinear

#: Numbers in a weight from which it is worth asking, outputs of the piece that is tried, rows.
LARGE, PIECE, ROWS = 2**20, 1024, 64
#: So many times faster it has to be: what is measured is not exact, and sums differ in rounding.
WORTH = 1.1
_TURNS = 3


class OneDNNLinear(nn.Linear):
    """A linear layer in float32 by oneDNN, except where gradients are wanted."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled() or input.dtype != torch.float32:
            return super().forward(input)
        return by_onednn(input, self.weight, self.bias)


def by_onednn(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(input, weight, bias, "none", [], "")
    return output


def choose_products(model: nn.Module) -> int:
    """Have oneDNN multiply where it is faster on this CPU.

    Returns:
        For how many layers it does.
    """
    chosen = 0
    for layer, piece in _large(model):
        if not _faster(*piece.shape):
            continue
        if isinstance(layer, WideLinear):
            layer.product = by_onednn
        else:
            layer.__class__ = OneDNNLinear  # the same weights
        chosen += 1
    return chosen


def _large(model: nn.Module) -> Iterator[tuple[nn.Module, torch.Tensor]]:
    """Layers that multiply a large weight in float32, and the piece that stands for it."""
    for layer in list(model.modules()):
        wide = isinstance(layer, WideLinear) and layer.compute == torch.float32
        plain = type(layer) is nn.Linear and layer.weight.dtype == torch.float32
        weight = getattr(layer, "weight", None)
        if (wide or plain) and isinstance(weight, torch.Tensor) and weight.numel() >= LARGE:
            yield layer, weight[:PIECE]


@cache
def _faster(outputs: int, width: int) -> bool:
    """Whether oneDNN is, for a weight of these sizes."""
    if not torch.backends.mkldnn.is_available():
        return False
    rows, weight = torch.ones(ROWS, width), torch.ones(outputs, width)
    try:
        with torch.inference_mode():
            quickest = [_seconds(way, rows, weight) for way in (linear, by_onednn)]
    except (AttributeError, RuntimeError):  # another build of torch, another kind of CPU
        return False
    return quickest[0] >= WORTH * quickest[1]


def _seconds(way: object, rows: torch.Tensor, weight: torch.Tensor) -> float:
    """Of the quickest of some turns, behind one that only warms up."""
    assert callable(way)
    way(rows, weight)
    taken = []
    for _ in range(_TURNS):
        started = time.perf_counter()
        way(rows, weight)
        taken.append(time.perf_counter() - started)
    return min(taken)
