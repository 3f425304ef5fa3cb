"""The two numbers that say whether a canvas is too short or too long."""

from collections.abc import Callable

import numpy as np

from rho_eos.decoding.policy import Prediction, View

EOS_WINDOW = 32

#: (the sequence, predictions at its MASKs or on its whole canvas, EOS id) -> a number in [0, 1]
Signal = Callable[[View, Prediction, int], float | None]


def density(view: View, prediction: Prediction, eos: int) -> float | None:
    """ρ: the share of MASKs whose implicit token is EOS. None with no MASK left: not 0, not 1."""
    if len(view.masked) == 0:
        return None
    return float(np.mean(prediction.at(view.masked).token == eos))


def confidence(view: View, prediction: Prediction, eos: int) -> float:
    """The rival: P(EOS) summed over the last up-to-32 positions whose argmax is EOS, over 32.

    It needs predictions on the whole canvas: committed positions count, which is why it saturates.
    """
    assert len(prediction.positions) == view.length, "EOS confidence reads the whole canvas"
    where_eos = np.flatnonzero(prediction.token == eos)[-EOS_WINDOW:]
    return float(prediction.eos_probability[where_eos].sum() / EOS_WINDOW)


SIGNALS: dict[str, Signal] = {"density": density, "confidence": confidence}
