"""What stands on a canvas: which of it was given, where its text ends, and what of it is final."""

from dataclasses import dataclass

import numpy as np

from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.edits import EditError


@dataclass(frozen=True, slots=True)
class Standing:
    canvas: np.ndarray  # (L,) int64
    #: (L,) int64, the gap each position belongs to, -1: text that was given. None: all are one gap.
    gaps: np.ndarray | None
    gap_count: int  # of the request; one that an edit has emptied counts
    special: SpecialTokens
    before_suffix: bool  # text is given behind the canvas
    gave_up: bool  # it ended among given text, not complete, and returns all that it has

    @property
    def given(self) -> np.ndarray:
        """(L,) bool: the positions of the canvas that came with the request and stay."""
        return np.zeros(len(self.canvas), dtype=bool) if self.gaps is None else self.gaps < 0

    @property
    def last_part(self) -> int:
        """Where the part of the canvas begins behind which no text is given."""
        if self.before_suffix:
            return len(self.canvas)
        if self.gaps is None:
            return 0
        return int(np.max(np.flatnonzero(self.gaps < 0), initial=-1)) + 1

    @property
    def ends(self) -> np.ndarray:
        """(L,) bool: where the text ends, which it cannot before text that is given."""
        ends = self.special.is_end(self.canvas)
        ends[: self.last_part] = False
        return ends

    @property
    def is_complete(self) -> bool:
        """No MASK is left before the first committed end: later positions are never returned."""
        ends = np.flatnonzero(self.ends)
        return len(ends) > 0 and not np.any(self.canvas[: ends[0]] == self.special.mask)

    @property
    def settled(self) -> int:
        """How many positions stand before the first MASK or end: they are final."""
        closed = self.ends | (self.canvas == self.special.mask)
        return int(np.argmax(closed)) if closed.any() else len(self.canvas)

    @property
    def open_gap(self) -> int | None:
        """The first gap that more tokens will come to; None: there is none."""
        at = self.settled
        if self.gave_up or at == len(self.canvas) or self.canvas[at] != self.special.mask:
            return None
        return 0 if self.gaps is None else int(self.gaps[at])

    @property
    def returned(self) -> np.ndarray:
        """(L,) bool: the tokens before the first MASK or end that were not given."""
        returned = ~self.given
        if self.gave_up:
            returned &= self.canvas != self.special.mask
        else:
            returned[self.settled :] = False
        return returned

    @property
    def tokens(self) -> list[int]:
        """Those that are returned, and can be sent."""
        return self.canvas[self.returned].tolist()

    @property
    def gap_tokens(self) -> list[list[int]]:
        """The same gap by gap, up to the first one that is still open."""
        if self.gaps is None:
            return [self.tokens]
        still_open = self.open_gap
        count = self.gap_count if still_open is None else still_open + 1
        returned = self.returned
        return [self.canvas[returned & (self.gaps == gap)].tolist() for gap in range(count)]

    @property
    def filled(self) -> np.ndarray:
        """The canvas with what was never decoded behind the end reported as EOS."""
        return np.where(self.canvas == self.special.mask, self.special.eos, self.canvas)


def follow(gaps: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """The gap of each new position: that of the position it stands before, or else behind."""
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
