"""Changes of a canvas, and the one place that carries them out.

All edits of a step are applied together: their positions are those of the canvas after the step's
commits and before any edit. Applying them yields `moved`: for each new position the old one, or -1.
Whoever keeps something for each position (the canvas's columns, a trace, a page, a cache) follows
that.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np


@dataclass(frozen=True, slots=True)
class Append:
    """`count` MASKs at the end, or `count` times a token that is committed at once."""

    verb: ClassVar[str] = "expand"
    count: int
    token: int | None = None


@dataclass(frozen=True, slots=True)
class Trim:
    """Drop the last `count` positions."""

    verb: ClassVar[str] = "contract"
    count: int


@dataclass(frozen=True, slots=True)
class Insert:
    """`count` MASKs before position `at`."""

    verb: ClassVar[str] = "insert"
    at: int
    count: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Drop these positions."""

    verb: ClassVar[str] = "delete"
    positions: np.ndarray  # (n,) int64


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Put these tokens, which may be MASK, at these positions."""

    verb: ClassVar[str] = "overwrite"
    positions: np.ndarray  # (n,) int64
    tokens: np.ndarray  # (n,) int64


Edit = Append | Trim | Insert | Delete | Overwrite


class EditError(ValueError):
    """A policy asked for an edit that does not fit the canvas, or that it may not make."""


def apply_edits(
    cells: np.ndarray, edits: tuple[Edit, ...], mask: int, longest: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The cells after all edits, `moved`, and the old positions that were dropped or overwritten.

    The new length is checked before anything of that size is allocated.
    """
    length = len(cells)
    tokens = cells.copy()
    kept = np.ones(length, dtype=bool)
    overwritten = np.zeros(length, dtype=bool)
    added: list[tuple[int, int, int]] = []  # (before which position, how many, which token)
    for edit in edits:
        match edit:
            case Append(count, token):
                added.append((length, _count(count), mask if token is None else token))
            case Insert(at, count):
                _within(np.array([at]), length + 1)
                added.append((at, _count(count), mask))
            case Trim(count):
                if _count(count) > length:
                    raise EditError(f"{count} positions cannot be dropped from {length}")
                kept[length - count :] = False
            case Delete(positions):
                _within(positions, length)
                kept[positions] = False
            case Overwrite(positions, values):
                _within(positions, length)
                tokens[positions] = values
                overwritten[positions] = True
    new_length = int(kept.sum()) + sum(count for _, count, _ in added)
    if added and new_length > max(longest, length):
        raise EditError(f"the canvas would have {new_length} positions, but may have {longest}")
    moved: list[np.ndarray] = []
    filled: list[np.ndarray] = []
    start = 0
    for at, count, token in (*sorted(added, key=lambda piece: piece[0]), (length, 0, mask)):
        old = start + np.flatnonzero(kept[start:at])
        moved += [old, np.full(count, -1)]
        filled += [tokens[old], np.full(count, token)]
        start = at
    return (
        np.concatenate(filled).astype(np.int64),
        np.concatenate(moved).astype(np.int64),
        np.flatnonzero(~kept | overwritten),
    )


def runs(moved: np.ndarray) -> list[tuple[int | None, int]]:
    """`moved` in few numbers: (first old position, how many); None for new positions."""
    if not len(moved):
        return []
    new = moved < 0
    together = np.where(new[1:], new[:-1], ~new[:-1] & (np.diff(moved) == 1))
    starts = np.concatenate(([0], np.flatnonzero(~together) + 1))
    counts = np.diff(np.append(starts, len(moved)))
    return [
        (None if new[start] else int(moved[start]), int(count))
        for start, count in zip(starts, counts, strict=True)
    ]


def _count(count: int) -> int:
    if count < 0:
        raise EditError(f"{count} positions cannot be added or dropped")
    return count


def _within(positions: np.ndarray, length: int) -> None:
    if len(positions) and (positions.min() < 0 or positions.max() >= length):
        raise EditError(f"the canvas has {length} positions, but an edit names {positions.max()}")
