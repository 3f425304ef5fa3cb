"""Rows put together for a step of training: padded, with a mask of what may see what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from training.rows import NO_TARGET, Row


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows padded to one length; all tensors are (rows, length)."""

    ids: torch.Tensor
    positions: torch.Tensor
    stream: torch.Tensor
    block: torch.Tensor
    targets: torch.Tensor
    weights: torch.Tensor
    kind: torch.Tensor  # (rows,)
    task: torch.Tensor  # (rows,)

    def attention_mask(self) -> torch.Tensor:
        """(rows, 1, length, length), 0 where a position sees another and -inf where not."""
        masked, block = self.stream.bool(), self.block
        from_masked, to_masked = masked[:, :, None], masked[:, None, :]
        own, other = block[:, :, None], block[:, None, :]
        earlier = torch.where(from_masked, other < own, other <= own)
        sees = (~to_masked & earlier) | (from_masked & to_masked & (own == other))
        sees |= torch.eye(block.shape[1], dtype=torch.bool)
        return torch.zeros(sees.shape).masked_fill_(~sees, float("-inf"))[:, None]


def batches(rows: Iterable[Row], tokens: int, rng: np.random.Generator) -> list[Batch]:
    """Rows of similar length together, at most so many tokens a batch, in random order."""
    groups: list[list[Row]] = [[]]
    for row in sorted(rows, key=len):
        if groups[-1] and len(row) * (len(groups[-1]) + 1) > tokens:
            groups.append([])
        groups[-1].append(row)
    order = rng.permutation(len(groups))
    return [_collate(groups[index]) for index in order]


def _collate(rows: Sequence[Row]) -> Batch:
    length = max(map(len, rows))

    def padded(field: str, fill: float) -> torch.Tensor:
        arrays = [getattr(row, field) for row in rows]
        return torch.from_numpy(
            np.stack([np.pad(a, (0, length - len(a)), constant_values=fill) for a in arrays])
        )

    return Batch(
        ids=padded("ids", 0),
        positions=padded("positions", 0),
        stream=padded("stream", 0),
        block=padded("block", 10**6),  # later than everything: nothing sees padding
        targets=padded("targets", NO_TARGET),
        weights=padded("weights", 0.0).float(),
        kind=torch.tensor([row.kind for row in rows]),
        task=torch.tensor([row.task for row in rows]),
    )
