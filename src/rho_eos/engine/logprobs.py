"""How likely each committed token was in the step that committed it: kept where a request asks."""

import numpy as np

from rho_eos.base.outputs import TokenLogprob
from rho_eos.decoding.policy import Prediction
from rho_eos.engine.commits import NEVER, Commits

#: What stands for the logarithm of a probability that has rounded to nothing: JSON has no infinity.
LEAST = -9999.0


class Logprobs:
    """The likeliest tokens at each position of a canvas, when it was committed. What nobody
    predicted (given tokens, tokens that an edit wrote) counts as certain."""

    def __init__(self, length: int, count: int) -> None:
        self.token = np.full((length, count), -1)
        self.probability = np.zeros((length, count))

    def committed(self, chosen: Prediction) -> None:
        if chosen.top_token is not None and chosen.top_probability is not None:
            self.token[chosen.positions] = chosen.top_token
            self.probability[chosen.positions] = chosen.top_probability

    def edited(self, moved: np.ndarray, written: np.ndarray) -> None:
        """Follow edits: `moved` as they return it, `written` by them."""
        old = np.maximum(moved, 0)
        kept = ((moved >= 0) & ~written)[:, None]
        self.token = np.where(kept, self.token[old], -1)
        self.probability = np.where(kept, self.probability[old], 0.0)

    def at(self, positions: np.ndarray, canvas: np.ndarray, commits: Commits) -> list[TokenLogprob]:
        """For the tokens at some positions of the canvas."""
        certain = np.where(commits.step == NEVER, 1.0, commits.probability)
        chosen, top = _logarithm(certain).tolist(), _logarithm(self.probability).tolist()
        alternatives = self.token.tolist()
        return [
            TokenLogprob(
                int(canvas[at]),
                chosen[at],
                tuple(
                    (other, value)
                    for other, value in zip(alternatives[at], top[at], strict=True)
                    if other >= 0
                ),
            )
            for at in positions.tolist()
        ]


def _logarithm(probability: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(probability), LEAST)
