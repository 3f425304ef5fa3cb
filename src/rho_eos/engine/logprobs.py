"""How likely each committed token was in the step that committed it: kept where a request asks."""

import numpy as np

from rho_eos.decoding.policy import Prediction
from rho_eos.outputs import TokenLogprob

#: What stands for the logarithm of a probability that has rounded to nothing: JSON has no infinity.
LEAST = -9999.0


class Logprobs:
    """One column for each position of a canvas. What nobody predicted (given tokens, tokens that an
    edit wrote) counts as certain."""

    def __init__(self, length: int, count: int) -> None:
        self.chosen = np.ones(length)
        self.top_token = np.full((length, count), -1)
        self.top = np.zeros((length, count))

    def committed(self, prediction: Prediction) -> None:
        at = prediction.positions
        self.chosen[at] = prediction.confidence
        if prediction.top_token is not None and prediction.top_probability is not None:
            self.top_token[at] = prediction.top_token
            self.top[at] = prediction.top_probability

    def edited(self, before: np.ndarray, after: np.ndarray, moved: np.ndarray) -> None:
        """Follow an edit of the canvas; `moved` says where each new position was."""
        old = np.maximum(moved, 0)
        kept = (moved >= 0) & (before[old] == after)
        self.chosen = np.where(kept, self.chosen[old], 1.0)
        self.top_token = np.where(kept[:, None], self.top_token[old], -1)
        self.top = np.where(kept[:, None], self.top[old], 0.0)

    def at(self, positions: np.ndarray, canvas: np.ndarray) -> list[TokenLogprob]:
        """For the tokens at some positions of the canvas."""
        chosen, top = _logarithm(self.chosen).tolist(), _logarithm(self.top).tolist()
        alternatives = self.top_token.tolist()
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
