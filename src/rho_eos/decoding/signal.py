"""Numbers that are read from a prediction: whether a canvas is too short, and how a text moves."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rho_eos.decoding.canvas import Canvas, Positions
from rho_eos.decoding.prediction import Prediction

EOS_WINDOW = 32
REMEMBERED = 8  # steps whose divergence is kept

#: (the sequence, predictions at its MASKs or on its whole canvas) -> a number in [0, 1]
Signal = Callable[[Canvas, Prediction], float | None]


def density(canvas: Canvas, prediction: Prediction) -> float | None:
    """ρ: the share of MASKs whose implicit token is EOS. None with no MASK left: not 0, not 1.

    In a block diffusion model it is that of the block being written: it says whether the text ends
    there, and nothing of a length.
    """
    masked = canvas.masked if canvas.blocks is None else prediction.among(canvas.masked)
    if len(masked) == 0 or canvas.opens:
        return None
    return float(np.mean(prediction.at(masked).token == canvas.special.eos))


def confidence(canvas: Canvas, prediction: Prediction) -> float:
    """The rival: P(EOS) summed over the last up-to-32 positions whose argmax is EOS, over 32.

    It needs predictions on the whole canvas: committed positions count, which is why it saturates.
    """
    assert len(prediction.positions) == canvas.length, "EOS confidence reads the whole canvas"
    where_eos = np.flatnonzero(prediction.token == canvas.special.eos)[-EOS_WINDOW:]
    return float(prediction.eos_probability[where_eos].sum() / EOS_WINDOW)


SIGNALS: dict[str, Signal] = {"density": density, "confidence": confidence}


def end_in_sight(canvas: Canvas, prediction: Prediction) -> int | None:
    """Where the EOS at the end of the canvas begin, implicit and committed ones; None: nowhere."""
    ends = canvas.cells == canvas.special.eos
    ends[canvas.masked] = prediction.at(canvas.masked).token == canvas.special.eos
    return int(np.max(np.flatnonzero(~ends), initial=-1)) + 1 if ends[-1] else None


def will_end(canvas: Canvas, prediction: Prediction, commit: Positions) -> bool:
    """Whether an end of text stands on the canvas once `commit` is written."""
    tokens = canvas.cells.copy()
    tokens[commit] = prediction.at(commit).token
    return bool(canvas.special.is_end(tokens[: canvas.most]).any())


def trailing_masks(canvas: Canvas, commit: Positions) -> int:
    """How many MASKs stand at the end of the canvas once `commit` is written."""
    still_masked = np.setdiff1d(canvas.masked, commit, assume_unique=True)
    # Counted from the end, the k-th trailing MASK must sit at position L - 1 - k.
    expected = np.arange(canvas.length - len(still_masked), canvas.length)
    return trailing(still_masked == expected)


def trailing(flags: np.ndarray) -> int:
    """How many at the end are true."""
    return int(len(flags) if flags.all() else np.argmin(flags[::-1]))


def with_divergence(canvas: Canvas, prediction: Prediction) -> Prediction:
    """The prediction with `divergence`: how much each distribution changed in the last steps.

    The likeliest tokens of every predicted MASK are kept in the canvas's columns until the next
    step, so `Needs.top` says how exact the number is.
    """
    tokens, probabilities = prediction.top_token, prediction.top_probability
    assert tokens is not None and probabilities is not None
    at, shape = prediction.positions, (canvas.length, tokens.shape[1])
    kept: dict[str, tuple[tuple[int, ...], float]] = {
        "likeliest": (shape, -1),
        "likelihood": (shape, 0.0),
        "divergence": ((canvas.length, REMEMBERED), np.inf),
    }
    columns = {
        name: canvas.column(name).copy() if name in canvas.columns else np.full(size, empty)
        for name, (size, empty) in kept.items()
    }
    now = divergence(columns["likeliest"][at], columns["likelihood"][at], tokens, probabilities)
    recent = np.column_stack((now, columns["divergence"][at][:, :-1]))
    columns["likeliest"][at], columns["likelihood"][at] = tokens, probabilities
    columns["divergence"][at] = recent
    for name, values in columns.items():
        canvas.keep(name, values, kept[name][1])
    return replace(prediction, divergence=recent)


def divergence(
    tokens: np.ndarray, probabilities: np.ndarray, now: np.ndarray, now_probabilities: np.ndarray
) -> np.ndarray:
    """(n,) the divergence KL(before || now) of distributions given by their likeliest tokens.

    All arrays are (n, k): token ids, -1 for none, and their probabilities. What is not among the
    likeliest of both counts as one further token, so the number is a lower bound; it is infinite
    where nothing is known of before.
    """
    after = np.zeros_like(probabilities)  # of each earlier token, now
    shared = np.zeros(tokens.shape, dtype=bool)
    for token, probability in zip(now.T, now_probabilities.T, strict=True):
        same = (tokens == token[:, None]) & (tokens >= 0)
        after += same * probability[:, None]
        shared |= same
    before = np.where(shared, probabilities, 0.0)
    rest, rest_now = (np.maximum(1 - each.sum(-1, keepdims=True), 0) for each in (before, after))
    p, q = np.hstack((before, rest)), np.hstack((after, rest_now))
    tiny = 1e-12
    total = (p * np.log(np.maximum(p, tiny) / np.maximum(q, tiny))).sum(-1)
    return np.where((tokens >= 0).any(-1), np.maximum(total, 0.0), np.inf)
