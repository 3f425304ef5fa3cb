"""F, the curve behind ρ: how sure the model is, at each length, that the text is over by there.

A model that was trained on answers padded with EOS is asked at every MASK for a token. P(EOS at i)
is then its belief that the text has at most i tokens, so over the canvas F(i) = P(EOS at i) is the
distribution function of the text's length (docs/method.md §3). ρ counts where F is above what
speaks for any other token; a length that suffices with a stated probability is a quantile of F.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rho_eos.base.outputs import Foretold
from rho_eos.decoding.canvas import Canvas
from rho_eos.decoding.prediction import Prediction

#: How a length is read from the same numbers: as their distribution function; as chances to end at
#: just this token, given that the text has come so far (Survival, arXiv 2608.26374); or where they
#: were below the share for the last time, not made monotone (SMARTCROP, arXiv 2603.06123).
Reading = Literal["cdf", "hazard", "last"]
SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)  # the quantiles that records keep
POINTS = 33  # at so many lengths, from 0 to the canvas's, records keep F


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """What the model says of the length of its text in one forward."""

    raw: np.ndarray  # (L,) float64, P(EOS) at every cell; 0 at a token, 1 from a written end on
    soft_rho: float | None  # the mean of P(EOS) over the MASKs; None where there is none

    @classmethod
    def of(cls, canvas: Canvas, prediction: Prediction) -> "Curve":
        """That of a forward which predicted every MASK. The text goes on behind written tokens."""
        predicted = prediction.at(canvas.masked).eos_probability
        raw = np.zeros(canvas.length)
        raw[canvas.masked] = predicted
        written = canvas.cells != canvas.special.mask
        end = int(np.argmax(canvas.ends)) if canvas.ends.any() else canvas.length
        raw[: int(np.max(np.flatnonzero(written[:end]), initial=-1)) + 1] = 0.0
        raw[end:] = 1.0
        return cls(raw, float(predicted.mean()) if len(predicted) else None)

    def distribution(self, reading: Reading = "cdf") -> np.ndarray:
        """(L,) F(0) to F(L - 1): how sure it is that the text has no more tokens than that."""
        if reading == "hazard":
            return 1 - np.cumprod(1 - self.raw)
        if reading == "last":
            return np.minimum.accumulate(self.raw[::-1])[::-1]
        return monotone(self.raw)

    def foretold(self) -> Foretold:
        """What is kept of it in the record of a step, however long the canvas is."""
        f = self.distribution()
        at = np.linspace(0, len(f), POINTS).astype(int)
        return Foretold(
            expected=float((1 - f).sum()),
            soft_rho=self.soft_rho,
            quantiles=tuple(least_length(f, share) for share in SHARES),
            curve=tuple(np.append(f, f[-1:])[at].round(4).tolist()) if len(f) else (),
        )


def least_length(distribution: np.ndarray, share: float) -> int | None:
    """The least length that suffices with this probability; None: none on this canvas does."""
    enough = distribution >= share
    return int(np.argmax(enough)) if enough.any() else None


def monotone(values: np.ndarray) -> np.ndarray:
    """The nearest sequence that never falls, by least squares (isotonic regression).

    Neighbours that fall always have one value in it, so all such runs are pooled at once, until
    nothing falls any more.
    """
    means, counts = values.astype(np.float64), np.ones(len(values), dtype=np.int64)
    while (falls := means[1:] < means[:-1]).any():
        starts = np.flatnonzero(np.concatenate(([True], ~falls)))
        sums = np.add.reduceat(means * counts, starts)
        counts = np.add.reduceat(counts, starts)
        means = sums / counts
    return np.repeat(means, counts)
