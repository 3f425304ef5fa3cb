"""The canvas of one request: what was given, what is committed, what is still MASK.

A row of the model is prompt, cells and suffix. The cells are what is decoded; a template's given
text stands among them. A canvas is never changed in place: a commit or an edit returns the next
one, so that whoever read an earlier one still holds it. What is kept for each cell (when it was
committed, how probable its token was, what a commit rule remembers) are columns, and they follow
the cells here and nowhere else.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.blocks import Blocks
from rho_eos.decoding.edits import Edit, EditError, apply_edits

Positions = np.ndarray  # (n,) int64, indices of cells, ascending

NEVER = -1  # in the columns of commits: the model did not commit what stands there
#: Columns of every canvas, and what stands in them where the model has committed nothing: the cell
#: is open, or was given, or an edit wrote it.
COMMIT_STEP, COMMIT_POSITION, COMMIT_PROBABILITY = "commit step", "commit position", "probability"
COMMIT_DRAWN = "probability of the draw"  # after temperature, top_k and top_p
_EMPTY: Mapping[str, float] = {
    COMMIT_STEP: NEVER,
    COMMIT_POSITION: NEVER,
    COMMIT_PROBABILITY: 0.0,
    COMMIT_DRAWN: 0.0,
}


def no_positions() -> Positions:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Column:
    """One value for each cell, and the value of a cell that has none."""

    values: np.ndarray  # (L, …)
    empty: Any

    def follow(self, moved: np.ndarray, written: np.ndarray) -> "Column":
        """The column after edits, which return `moved`. Cells that they wrote (bool) are
        emptied."""
        kept = (moved >= 0) & ~written
        values = np.full((len(moved), *self.values.shape[1:]), self.empty, self.values.dtype)
        values[kept] = self.values[moved[kept]]
        return Column(values, self.empty)


@dataclass(frozen=True, eq=False)
class Canvas:
    """What the module describes. Properties that take work are computed once for each canvas."""

    cells: np.ndarray  # (L,) int64, committed tokens and MASKs
    special: SpecialTokens
    prompt: np.ndarray = field(default_factory=no_positions)  # (P,) int64, what stands before
    suffix: np.ndarray = field(default_factory=no_positions)  # (S,) int64, what stands behind
    #: (L,) int64, the gap that each cell belongs to, -1: text that was given. None: all are one.
    gaps: np.ndarray | None = None
    gap_count: int = 1  # an edit may empty a gap; it still counts
    sized: frozenset[int] = frozenset()  # gaps that have the length they are to have
    blocks: Blocks | None = (
        None  # of a block diffusion model; None: every position sees every other
    )
    #: Cells from here on are never returned: a block is written whole, also where fewer are wanted.
    most: int | None = None
    #: A cell of the block that is still being written although no MASK may be left in it.
    held: int | None = None
    step: int = 0  # forwards made so far
    gave_up: bool = False  # it ended incomplete among given text, and returns all that it has
    columns: dict[str, Column] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, empty in _EMPTY.items():
            kind = np.float64 if isinstance(empty, float) else np.int64
            self.columns.setdefault(name, Column(np.full(self.length, empty, kind), empty))

    @classmethod
    def of(
        cls,
        special: SpecialTokens,
        prompt: Sequence[int],
        cells: Sequence[int] | int,
        suffix: Sequence[int] = (),
        gaps: Sequence[int] | None = None,
        sized: Collection[int] = (),
        blocks: Blocks | None = None,
        most: int | None = None,
    ) -> "Canvas":
        """A new canvas from lists of token ids. A number in place of the cells means so many
        MASKs."""
        cells = [special.mask] * cells if isinstance(cells, int) else cells
        own = None if gaps is None else np.array(gaps, dtype=np.int64)
        return cls(
            np.array(cells, dtype=np.int64),
            special,
            prompt=np.array(prompt, dtype=np.int64),
            suffix=np.array(suffix, dtype=np.int64),
            gaps=own,
            gap_count=1 if own is None else int(own.max(initial=0)) + 1,
            sized=frozenset(sized),
            blocks=blocks,
            most=most,
        )

    # ── what stands where ────────────────────────────────────────────────────────────────────

    @property
    def length(self) -> int:
        return len(self.cells)

    @property
    def row_length(self) -> int:
        """Positions of the whole row: prompt, cells and suffix."""
        return len(self.prompt) + self.length + len(self.suffix)

    @cached_property
    def masked(self) -> Positions:
        """Where the MASKs are."""
        return np.flatnonzero(self.cells == self.special.mask)

    @cached_property
    def given(self) -> np.ndarray:
        """(L,) bool: the cells that came with the request and stay."""
        return np.zeros(self.length, dtype=bool) if self.gaps is None else self.gaps < 0

    @property
    def own_length(self) -> int:
        """How many cells were not given."""
        return self.length - int(np.count_nonzero(self.given))

    @property
    def given_length(self) -> int:
        """How many positions of the row were given: prompt, suffix, and what stands between."""
        return self.row_length - self.own_length

    @property
    def between(self) -> dict[int, int]:
        """The given tokens among the cells, by position."""
        return {int(at): int(self.cells[at]) for at in np.flatnonzero(self.given)}

    def behind(self, count: int) -> int:
        """The position behind the first `count` cells that were not given."""
        if self.gaps is None:
            return count
        own = np.flatnonzero(~self.given)
        if not count:
            return 0
        return int(own[count - 1]) + 1 if count <= len(own) else self.length

    def gap_of(self, position: int) -> np.ndarray:
        """(L,) bool: the cells of the gap that this one belongs to."""
        if self.gaps is None:
            return np.ones(self.length, dtype=bool)
        return np.asarray(self.gaps == self.gaps[position])

    @cached_property
    def last_part(self) -> int:
        """The first of the cells behind which no text is given."""
        if len(self.suffix):
            return self.length
        return int(np.max(np.flatnonzero(self.given), initial=-1)) + 1

    @property
    def ends_openly(self) -> bool:
        """Whether its length is the text's to decide, and a forward sees all of it: no text is
        given behind or between the cells, and MASKs behind the open block are seen."""
        return self.blocks is None and self.gaps is None and not len(self.suffix)

    @cached_property
    def ends(self) -> np.ndarray:
        """(L,) bool: the cells that end the text. None does that before text that was given."""
        ends = self.special.is_end(self.cells)
        ends[: self.last_part] = False
        ends[self.most :] &= self.most is None
        return ends

    # ── its blocks ───────────────────────────────────────────────────────────────────────────

    @property
    def before_block(self) -> int:
        """How many positions of the prompt belong to the block of the first cell."""
        if self.blocks is None:
            return 0
        prompt = len(self.prompt)
        return (prompt + self.blocks.offset(prompt)) % self.blocks.length

    def block(self, cell: int, size: int | None, part: int | None = None) -> tuple[int, int]:
        """Where the block that holds this cell begins and ends, in cells.

        Args:
            cell: The cell.
            size: Positions of a block. None: all cells are one block.
            part: A block is divided into parts of so many positions, and the part that holds the
                cell is meant.
        """
        if size is None:
            return 0, self.length
        first = (cell + self.before_block) // size * size - self.before_block
        end = first + size
        if part is not None:
            first += (cell - first) // part * part
            end = min(end, first + part)
        return max(first, 0), min(end, self.length)

    def open_block(self, size: int | None, part: int | None = None) -> tuple[int, int]:
        """Where the block that is being written begins and ends: the block of the first MASK."""
        if self.held is not None:
            return self.block(self.held, size)
        first = int(self.masked[0]) if len(self.masked) else self.length
        return self.block(first, size, part)

    def open_masks(self, size: int | None, part: int | None = None) -> Positions:
        """The MASKs of the block that is being written."""
        first, end = self.open_block(size, part)
        return self.masked[(self.masked >= first) & (self.masked < end)]

    @cached_property
    def opens(self) -> bool:
        """Whether the next forward only reads the first token of a block from what stands before
        it, as the model was trained to (`Blocks.opens_with_store`)."""
        if self.blocks is None or not self.blocks.opens_with_store or not len(self.masked):
            return False
        at_start = (int(self.masked[0]) + self.before_block) % self.blocks.length == 0
        return at_start and self.held is None

    @cached_property
    def visible(self) -> int:
        """How many cells the next forward holds: none behind the open block, which sees none."""
        if self.blocks is None:
            return self.length
        first, end = self.open_block(self.blocks.length)
        return first if self.opens else end

    def whole_blocks(self, length: int) -> int:
        """The smallest length that is at least `length` and at which the last block is whole.

        Blocks that are counted from the end of the prompt may be short at the end of the canvas.
        """
        if self.blocks is None or self.blocks.alignment == "prompt":
            return length
        return length + -(self.before_block + length) % self.blocks.length

    # ── what of it is final ──────────────────────────────────────────────────────────────────

    @cached_property
    def is_complete(self) -> bool:
        """No MASK is left before the first committed end: later cells are never returned."""
        ends = np.flatnonzero(self.ends)
        end = int(ends[0]) if len(ends) else self.most
        if end is None or end > self.length:
            return False
        return not np.any(self.cells[:end] == self.special.mask)

    @cached_property
    def final_prefix(self) -> int:
        """How many cells stand before the first MASK or end."""
        closed = self.ends | (self.cells == self.special.mask)
        closed[self.most :] |= self.most is not None
        return int(np.argmax(closed)) if closed.any() else self.length

    @property
    def open_gap(self) -> int | None:
        """The first gap that more tokens will come to; None: there is none."""
        at = self.final_prefix
        if self.gave_up or at == self.length or self.cells[at] != self.special.mask:
            return None
        return 0 if self.gaps is None else int(self.gaps[at])

    @cached_property
    def returned(self) -> Positions:
        """The cells before the first MASK or end that were not given: the text."""
        own = ~self.given
        if self.gave_up:
            own &= self.cells != self.special.mask
        else:
            own[self.final_prefix :] = False
        return np.flatnonzero(own)

    @property
    def tokens(self) -> list[int]:
        """The tokens of the text."""
        return self.cells[self.returned].tolist()

    @property
    def gap_tokens(self) -> list[list[int]]:
        """The tokens of the text gap by gap, up to the first gap that is still open."""
        if self.gaps is None:
            return [self.tokens]
        count = self.gap_count if self.open_gap is None else self.open_gap + 1
        at = self.returned
        return [self.cells[at[self.gaps[at] == gap]].tolist() for gap in range(count)]

    @property
    def filled(self) -> np.ndarray:
        """The cells, with what was never decoded behind the end reported as EOS."""
        return np.where(self.cells == self.special.mask, self.special.eos, self.cells)

    def column(self, name: str) -> np.ndarray:
        """What is kept under this name for each cell."""
        return self.columns[name].values

    def keep(self, name: str, values: np.ndarray, empty: Any) -> None:
        """Keep values for the cells; they follow every later commit and edit."""
        self.columns[name] = Column(values, empty)

    # ── what may become of it ────────────────────────────────────────────────────────────────

    def commit(
        self,
        positions: Positions,
        tokens: np.ndarray,
        probability: np.ndarray,
        held: int | None = None,
        drawn: np.ndarray | None = None,
    ) -> "Canvas":
        """The canvas one step later, with these tokens at these positions."""
        cells = self.cells.copy()
        cells[positions] = tokens
        noted = {
            COMMIT_STEP: np.full(len(positions), self.step),
            COMMIT_POSITION: positions,
            COMMIT_PROBABILITY: probability,
            COMMIT_DRAWN: np.ones(len(positions)) if drawn is None else drawn,
        }
        columns = dict(self.columns)
        for name, values in noted.items():
            columns[name] = Column(columns[name].values.copy(), columns[name].empty)
            columns[name].values[positions] = values
        return replace(self, cells=cells, step=self.step + 1, columns=columns, held=held)

    def edit(self, edits: tuple[Edit, ...], longest: int) -> "Edited":
        """The canvas after all edits. Beside given text it may have at most `longest` cells."""
        most = longest + self.length - self.own_length
        cells, moved, changed = apply_edits(self.cells, edits, self.special.mask, most)
        kept = moved >= 0
        written = np.zeros(len(cells), dtype=bool)
        written[kept] = cells[kept] != self.cells[moved[kept]]
        columns = {name: column.follow(moved, written) for name, column in self.columns.items()}
        gaps = None if self.gaps is None else _follow_gaps(self.gaps, moved)
        held = None
        if self.held is not None:
            held = next(iter(np.flatnonzero(moved == self.held).tolist()), None)
        return Edited(
            replace(self, cells=cells, gaps=gaps, columns=columns, held=held), moved, changed
        )

    def hidden(self, positions: Positions) -> "Canvas":
        """The canvas with MASK at these positions, which count on from the cells into the
        suffix."""
        tokens = np.concatenate((self.cells, self.suffix))
        tokens[positions] = self.special.mask
        cells, suffix = tokens[: self.length], tokens[self.length :]
        columns, held = dict(self.columns), self.held
        if held is None and len(self.masked):
            held = int(self.masked[0])  # the block that is being written stays the same
        return replace(self, cells=cells, suffix=suffix, columns=columns, held=held)


@dataclass(frozen=True, slots=True)
class Edited:
    """A canvas after edits, and where everything went."""

    canvas: Canvas
    moved: np.ndarray  # (L',) int64, the old position of each cell, -1 for a new one
    changed: Positions  # old positions that were dropped or overwritten


def _follow_gaps(gaps: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """The gap of each cell: a new one belongs to that of the cell it stands before, or behind."""
    unknown = -2
    new = np.array([gaps[old] if old >= 0 else unknown for old in moved], dtype=np.int64)
    for index in np.flatnonzero(new == unknown)[::-1]:
        if index + 1 < len(new) and new[index + 1] >= 0:
            new[index] = new[index + 1]
    for index in np.flatnonzero(new == unknown):
        if index and new[index - 1] >= 0:
            new[index] = new[index - 1]
    if np.any(new == unknown):
        raise EditError("there is no gap between these two given texts")
    return new
