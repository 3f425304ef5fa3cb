"""For each position of a canvas: when its token was committed, how sure the model was, and where
it stood then. It follows the edits, so nobody has to replay a trace for it."""

from dataclasses import dataclass

import numpy as np

NEVER = -1


@dataclass(slots=True)
class Commits:
    """NEVER and a probability of 0: the model did not commit what stands there. It is open, or was
    given, or an edit wrote it."""

    step: np.ndarray  # (L,) int64
    position: np.ndarray  # (L,) int64
    probability: np.ndarray  # (L,) float64

    @classmethod
    def on(cls, length: int) -> "Commits":
        """Those of a new canvas."""
        return cls(np.full(length, NEVER), np.full(length, NEVER), np.zeros(length))

    def note(self, positions: np.ndarray, step: int, probability: np.ndarray) -> None:
        self.step[positions] = step
        self.position[positions] = positions
        self.probability[positions] = probability

    def after(self, moved: np.ndarray, written: np.ndarray) -> "Commits":
        """The same once edits are applied: `moved` as edits return it, `written` by them (bool)."""
        kept = (moved >= 0) & ~written
        old = moved[kept]
        after = Commits.on(len(moved))
        after.step[kept] = self.step[old]
        after.position[kept] = self.position[old]
        after.probability[kept] = self.probability[old]
        return after
