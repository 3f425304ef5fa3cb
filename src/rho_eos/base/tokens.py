"""Ids that mean something to decoding. Configuration of a model, never literals in the loop."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    mask: int
    eos: int
    end_of_turn: int | None = None
    expand: int | None = None  # DreamOn's: it becomes two MASKs

    @property
    def ends(self) -> tuple[int, ...]:
        """The returned text stops at the first of these."""
        if self.end_of_turn is None or self.end_of_turn == self.eos:
            return (self.eos,)
        return (self.eos, self.end_of_turn)

    def is_end(self, tokens: np.ndarray) -> np.ndarray:
        """Where the text stops; a few times faster than numpy's isin for one or two ids."""
        found: np.ndarray = tokens == self.eos
        return found if len(self.ends) == 1 else found | (tokens == self.end_of_turn)
