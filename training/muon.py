"""Muon: momentum whose update is orthogonalised, for the matrices of a transformer.

torch's own works in bfloat16, which CPUs without it emulate slowly; this one keeps float32 and
treats all matrices of a shape at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch

MOMENTUM = 0.95
WEIGHT_DECAY = 0.01
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # quintic that pulls all singular values towards 1


class Muon:
    """An optimizer for 2-D parameters; the learning rate is given at each step."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        self.groups: dict[torch.Size, list[torch.nn.Parameter]] = defaultdict(list)
        for parameter in parameters:
            self.groups[parameter.shape].append(parameter)
        self.momenta = [
            torch.zeros(len(group), *shape) for shape, group in self.groups.items()
        ]  # per shape (matrices, rows, columns)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for (shape, group), momentum in zip(self.groups.items(), self.momenta, strict=True):
            gradient = torch.stack([p.grad for p in group if p.grad is not None])
            momentum.lerp_(gradient, 1 - MOMENTUM)
            update = orthogonalised(gradient.lerp(momentum, MOMENTUM))
            update *= max(1.0, shape[0] / shape[1]) ** 0.5
            for parameter, change in zip(group, update, strict=True):
                parameter.mul_(1 - rate * WEIGHT_DECAY).sub_(change, alpha=rate)

    def state_dict(self) -> dict[str, list[torch.Tensor]]:
        return {"momenta": self.momenta}

    def load_state_dict(self, state: dict[str, list[torch.Tensor]]) -> None:
        self.momenta = state["momenta"]


def orthogonalised(matrices: torch.Tensor, iterations: int = 5) -> torch.Tensor:
    """The nearest (semi-)orthogonal matrices, roughly, by Newton-Schulz iteration."""
    a, b, c = NEWTON_SCHULZ
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x
