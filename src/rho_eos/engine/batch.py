"""Packing: rows of different lengths laid end to end, no padding. Pure functions over arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rho_eos.decoding.canvas import no_positions
from rho_eos.decoding.edits import EditError
from rho_eos.models.attention import Span


@dataclass(frozen=True, slots=True)
class RowInput:
    """What one sequence brings to a forward, whoever asks for it."""

    prompt: np.ndarray  # (P,) int64
    canvas: np.ndarray  # (L,) int64
    wanted: np.ndarray  # (n,) int64, canvas positions to predict
    cfg_scale: float = 0.0
    computed: np.ndarray | None = None  # (m,) int64, positions of the whole row; None: all
    suffix: np.ndarray = field(default_factory=no_positions)  # (S,) int64, behind the canvas
    #: The length of the row's blocks and the offset of its positions in them; None: all see all.
    blocks: tuple[int, int] | None = None

    @property
    def length(self) -> int:
        """Positions of the whole row."""
        return len(self.prompt) + len(self.canvas) + len(self.suffix)


#: Positions of several blocks that share one mask, so that a mask stays small.
MASKED_AT_ONCE = 512


def spans_of(first: int, end: int, length: int, offset: int) -> list[Span]:
    """Divide the computed positions of a row in blocks, from `first` to `end`, into spans.

    The last block is a span of its own, which sees all that is computed or kept. The blocks before
    it are spans as well; where several of them share one, it has a mask.
    """
    last = max(first, (end - 1 + offset) // length * length - offset)
    spans: list[Span] = []
    step = max(length, MASKED_AT_ONCE // length * length)
    begin = (first + offset) // length * length - offset  # of the first block
    for start in range(begin, last, step) if first < last else ():
        stop, start = min(start + step, last), max(first, start)
        block = (np.arange(stop) + offset) // length
        several = block[start] != block[stop - 1]
        mask = block[None, :] <= block[start:stop, None] if several else None
        spans.append(Span(stop - start, stop, mask))
    return [*spans, Span(end - last, end)]


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """The input of one forward, and where in its output each sequence's predictions are read.

    A sequence with guidance owns two rows: its own and one whose prompt and suffix are masked.
    """

    input_ids: np.ndarray  # (T,) int64
    position_ids: np.ndarray  # (T,) int64, from 0 in each row
    row_lengths: tuple[int, ...]
    spans: tuple[tuple[Span, ...] | None, ...]  # of each row; None: all of it sees all that is kept
    read_at: np.ndarray  # (n,) int64, index into T for each wanted position of all sequences
    owners: np.ndarray  # (n,) int64, which sequence it belongs to
    starts: np.ndarray  # (sequences,) int64, where in the n each one's begin
    positions: np.ndarray  # (n,) int64, which position of its canvas
    unconditional_at: np.ndarray  # (g,) int64, index into T of the row with the masked prompt
    guided: np.ndarray  # (g,) int64, which of the n that is for
    cfg_scale: np.ndarray  # (g,) float32


def pack(sequences: Sequence[RowInput], shift: int, mask: int) -> PackedBatch:
    """Lay the rows out. `shift`: the prediction for position i is read at i - shift."""
    rows: list[np.ndarray] = []
    places: list[np.ndarray] = []
    read_at: list[np.ndarray] = []
    guided: list[np.ndarray] = []
    unconditional_at: list[np.ndarray] = []
    scales: list[np.ndarray] = []
    spans: list[tuple[Span, ...] | None] = []
    tokens = predictions = 0
    for sequence in sequences:
        row = np.concatenate((sequence.prompt, sequence.canvas, sequence.suffix))
        count = len(sequence.wanted)
        inside = len(sequence.prompt) + sequence.wanted - shift
        computed = sequence.computed
        if computed is not None:
            if sequence.blocks is not None and not np.isin(inside, computed).all():
                raise EditError("what is read stands at a position that the cache does not compute")
            row, inside = row[computed], np.searchsorted(computed, inside)
        places.append(np.arange(len(row)) if computed is None else computed)
        own_spans = None
        if sequence.blocks is not None:
            at = places[-1]
            own_spans = tuple(spans_of(int(at[0]), int(at[-1]) + 1, *sequence.blocks))
        spans += [own_spans] * (1 + (sequence.cfg_scale > 0))
        rows.append(row)
        read_at.append(tokens + inside)
        tokens += len(row)
        if sequence.cfg_scale > 0:
            before, behind = (np.full_like(p, mask) for p in (sequence.prompt, sequence.suffix))
            other = np.concatenate((before, sequence.canvas, behind))
            rows.append(other if computed is None else other[computed])
            places.append(places[-1])
            guided.append(predictions + np.arange(count))
            unconditional_at.append(tokens + inside)
            scales.append(np.full(count, sequence.cfg_scale, dtype=np.float32))
            tokens += len(row)
        predictions += count
    counts = [len(sequence.wanted) for sequence in sequences]
    return PackedBatch(
        input_ids=np.concatenate(rows),
        position_ids=np.concatenate(places),
        row_lengths=tuple(len(row) for row in rows),
        spans=tuple(spans),
        read_at=np.concatenate(read_at),
        owners=np.repeat(np.arange(len(sequences)), counts),
        starts=np.cumsum([0, *counts[:-1]]),
        positions=np.concatenate([sequence.wanted for sequence in sequences]),
        unconditional_at=_joined(unconditional_at, np.int64),
        guided=_joined(guided, np.int64),
        cfg_scale=_joined(scales, np.float32),
    )


def _joined(parts: list[np.ndarray], kind: type) -> np.ndarray:
    return np.concatenate(parts) if parts else np.empty(0, dtype=kind)
