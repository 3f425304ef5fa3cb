"""Packing: rows of different lengths laid end to end, no padding. Pure functions over arrays."""

from collections.abc import Sequence as Rows
from dataclasses import dataclass

import numpy as np

from rho_eos.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """The input of one forward, and where in its output each sequence's predictions are read.

    A sequence with guidance owns two rows: its own and one whose prompt is masked.
    """

    input_ids: np.ndarray  # (T,) int64
    position_ids: np.ndarray  # (T,) int64, from 0 in each row
    row_lengths: tuple[int, ...]
    wanted: tuple[np.ndarray, ...]  # per sequence, canvas positions to predict
    read_at: np.ndarray  # (Σ wanted,) int64, index into T for each of them
    guided: np.ndarray  # (g,) int64, which of the wanted positions are under guidance
    unconditional_at: np.ndarray  # (g,) int64, index into T of their row with the masked prompt

    @property
    def counts(self) -> list[int]:
        return [len(positions) for positions in self.wanted]


def pack(sequences: Rows[Sequence], shift: int) -> PackedBatch:
    """Lay the rows out. `shift`: the prediction for position i is read at i - shift."""
    rows: list[np.ndarray] = []
    wanted: list[np.ndarray] = []
    read_at: list[np.ndarray] = []
    guided: list[np.ndarray] = []
    unconditional_at: list[np.ndarray] = []
    tokens = predictions = 0
    for sequence in sequences:
        row = np.concatenate((sequence.prompt, sequence.canvas))
        positions = sequence.wanted_positions()
        inside = len(sequence.prompt) + positions - shift
        wanted.append(positions)
        rows.append(row)
        read_at.append(tokens + inside)
        tokens += len(row)
        if sequence.params.cfg_scale > 0:
            masked_prompt = np.full_like(sequence.prompt, sequence.special.mask)
            rows.append(np.concatenate((masked_prompt, sequence.canvas)))
            guided.append(predictions + np.arange(len(positions)))
            unconditional_at.append(tokens + inside)
            tokens += len(row)
        predictions += len(positions)
    return PackedBatch(
        input_ids=np.concatenate(rows),
        position_ids=np.concatenate([np.arange(len(row)) for row in rows]),
        row_lengths=tuple(len(row) for row in rows),
        wanted=tuple(wanted),
        read_at=np.concatenate(read_at),
        guided=_joined(guided),
        unconditional_at=_joined(unconditional_at),
    )


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
