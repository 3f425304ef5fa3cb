"""Layers that keep their weights in 16 bit and multiply in float32: half the memory, same results.

A weight is widened to float32 when it is used, a few rows at a time, so that only one such piece
exists in float32 at any moment.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import embedding, linear

#: Bytes of the piece that is widened at a time: large enough for a product of full speed.
PIECE = 32 * 2**20


class WideLinear(nn.Module):
    """A linear layer whose weight is narrower than what it is multiplied with."""

    def __init__(self, narrow: nn.Linear, compute: torch.dtype) -> None:
        super().__init__()
        self.weight, self.bias, self.compute = narrow.weight, narrow.bias, compute
        self.in_features, self.out_features = narrow.in_features, narrow.out_features
        self.rows = max(1, PIECE // (self.in_features * compute.itemsize))
        self.product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = linear

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        pieces = [
            self.product(input, piece.to(self.compute)) for piece in self.weight.split(self.rows)
        ]
        output = pieces[0] if len(pieces) == 1 else torch.cat(pieces, -1)
        return output if self.bias is None else output + self.bias


class WideEmbedding(nn.Module):
    """An embedding that is widened where it is looked up."""

    def __init__(self, narrow: nn.Embedding, compute: torch.dtype) -> None:
        super().__init__()
        self.weight, self.compute = narrow.weight, compute

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return embedding(ids, self.weight).to(self.compute)


def widen(model: nn.Module, compute: torch.dtype) -> None:
    """Have a model compute in `compute` and keep its large weights as they are."""
    kept = set()
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear | nn.Embedding) and child.weight.dtype != compute:
                wide = WideLinear if isinstance(child, nn.Linear) else WideEmbedding
                setattr(module, name, wide(child, compute))  # type: ignore[arg-type]
                kept.add(child.weight)
    for weight in model.parameters():
        if weight not in kept and weight.is_floating_point():
            weight.data = weight.data.to(compute)
