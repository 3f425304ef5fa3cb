"""Which positions of a row the next forward computes: all of them, or a window (docs/cache.md).

Every decision is made from the row alone, so a cached row gives the same tokens in any batch. What
is kept for each position is the key and value of the last forward that computed it.
"""

from dataclasses import dataclass, field

import numpy as np

from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.params import DecodeParams


@dataclass(slots=True)
class Window:
    """The state of one cached row. `stale`: the next forward is a refresh."""

    params: DecodeParams
    special: SpecialTokens
    suffix: int = 0  # positions of text behind the canvas
    stale: bool = True
    steps: int = 0  # since the last refresh
    commits: int = 0
    sees_end: bool = False  # an end of text is committed, or was predicted in the last step
    #: Canvas positions committed or appended since the last refresh.
    touched: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))

    def positions(self, prompt: int, canvas: np.ndarray) -> np.ndarray | None:
        """Positions of the row to compute next, ascending; None: all, a refresh."""
        masked = np.flatnonzero(canvas == self.special.mask)
        if self.stale or not len(masked):
            return None
        first, last = int(masked[0]), int(masked[: self.params.cache_window][-1])
        if last == len(canvas) - 1 and not self.sees_end and not self.suffix:
            return None  # the canvas may have to grow, which only a refresh can tell
        wanted = np.zeros(prompt + len(canvas) + self.suffix, dtype=bool)
        back = max(self.params.cache_back, 1)  # a shifted prediction is read one to the left
        wanted[max(0, prompt + first - back) : prompt + last + 1] = True
        wanted[prompt : prompt + len(canvas)] |= self.touched
        return None if wanted.all() else np.flatnonzero(wanted)

    def refreshed(self, length: int) -> None:
        """All positions of a canvas of this length were just computed."""
        self.stale = False
        self.steps = self.commits = 0
        self.touched = np.zeros(length, dtype=bool)

    def committed(self, positions: np.ndarray, confidence: np.ndarray) -> None:
        """What the step wrote. Enough of it, or something unsure, asks for a refresh."""
        params = self.params
        self.touched[positions] = True
        self.steps += 1
        self.commits += len(positions)
        unsure = len(confidence) > 0 and float(confidence.min()) < params.cache_unsure
        full = self.steps >= params.cache_steps or self.commits >= params.cache_commits
        self.stale = self.stale or full or unsure

    def moved(self, moved: np.ndarray) -> None:
        """The canvas was edited: an append or a trim leaves all others where they were."""
        same_length = len(moved) == len(self.touched)
        kept = moved[moved >= 0]
        in_place = np.array_equal(moved[: len(kept)], np.arange(len(kept)))
        self.touched = np.where(moved >= 0, self.touched[np.maximum(moved, 0)], True)
        # What stands behind the canvas moves with its end.
        self.stale = self.stale or not in_place or (self.suffix > 0 and not same_length)
