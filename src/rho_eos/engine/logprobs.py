"""How likely each committed token was in the step that committed it: kept where a request asks."""

import numpy as np

from rho_eos.base.outputs import TokenLogprob
from rho_eos.decoding.canvas import COMMIT_PROBABILITY, COMMIT_STEP, NEVER, Canvas
from rho_eos.decoding.prediction import Prediction

#: What stands for the logarithm of a probability that has rounded to nothing: JSON has no infinity.
LEAST = -9999.0
TOKENS, PROBABILITIES = "alternatives", "probabilities of alternatives"


def keep_alternatives(canvas: Canvas, chosen: Prediction, count: int) -> None:
    """Keep the likeliest tokens at the cells that were just committed, as columns of the canvas."""
    assert chosen.top_token is not None and chosen.top_probability is not None
    found = {TOKENS: (chosen.top_token, -1), PROBABILITIES: (chosen.top_probability, 0.0)}
    for name, (values, empty) in found.items():
        known = canvas.columns.get(name)
        shape = (canvas.length, count)
        column = np.full(shape, empty) if known is None else known.values.copy()
        column[chosen.positions] = values[:, :count]
        canvas.keep(name, column, empty)


def logprobs_of(canvas: Canvas) -> list[TokenLogprob]:
    """For each token of the text. What nobody predicted (given tokens, tokens that an edit wrote)
    counts as certain."""
    given = canvas.column(COMMIT_STEP) == NEVER
    chosen = _logarithm(np.where(given, 1.0, canvas.column(COMMIT_PROBABILITY)))
    alternatives: list[tuple[tuple[int, float], ...]] = [()] * canvas.length
    if TOKENS in canvas.columns:
        tokens, values = canvas.column(TOKENS), _logarithm(canvas.column(PROBABILITIES))
        alternatives = [
            tuple(
                (int(token), float(value)) for token, value in zip(*pair, strict=True) if token >= 0
            )
            for pair in zip(tokens, values, strict=True)
        ]
    return [
        TokenLogprob(int(canvas.cells[at]), float(chosen[at]), alternatives[at])
        for at in canvas.returned.tolist()
    ]


def _logarithm(probability: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(probability), LEAST)
