"""What is asked of a forward, and what it says: the statistics that policies and rules read."""

from dataclasses import dataclass, field, fields, replace

import numpy as np

from rho_eos.decoding.canvas import Canvas, Positions


@dataclass(frozen=True, slots=True)
class Needs:
    """What is read beyond token, confidence and P(EOS) at the MASKs. Only what is named is made."""

    whole_canvas: bool = False  # predictions at committed positions too
    entropy: bool = False
    margin: bool = False
    top: int = 0  # the likeliest tokens and their probabilities, so many
    divergence: bool = False  # how much distributions changed; it is read from `top`

    def __or__(self, other: "Needs") -> "Needs":
        """What two readers need together."""
        return Needs(
            self.whole_canvas or other.whole_canvas,
            self.entropy or other.entropy,
            self.margin or other.margin,
            max(self.top, other.top),
            self.divergence or other.divergence,
        )


@dataclass(frozen=True, slots=True)
class Probe:
    """A further canvas of the same row, which the same forward predicts beside the row's own.

    It asks "what would the model say if": with another length, or with some tokens hidden. Its
    prediction speaks of `read`, positions that count on from its cells into its suffix. With
    `tokens`, one for each of them, it also says how probable these tokens are.
    """

    canvas: Canvas
    read: Positions
    tokens: np.ndarray | None = None  # (n,) int64


class NotPredictedError(LookupError):
    """Somebody asked for the prediction at a position that the forward did not predict."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says at `positions`: the MASKs, or the whole canvas where that is asked."""

    positions: Positions
    token: np.ndarray  # (n,) int64, the chosen token, never MASK
    confidence: np.ndarray  # (n,) float64, its probability over the whole vocabulary
    eos_probability: np.ndarray  # (n,) float64
    #: (n,) float64, how probable it was that the token is drawn: after temperature, top_k and
    #: top_p, 1 where the best one is taken. None: nothing was drawn.
    drawn: np.ndarray | None = None
    entropy: np.ndarray | None = None  # (n,) float64, in nats, where it is needed
    margin: np.ndarray | None = None  # (n,) float64, best less second best probability, likewise
    top_token: np.ndarray | None = None  # (n, k) int64, the likeliest tokens, -1 beyond the last
    top_probability: np.ndarray | None = None  # (n, k) float64
    #: (n, steps) float64, the divergence from one step to the next, the last one first, likewise
    divergence: np.ndarray | None = None
    expected: np.ndarray | None = None  # (n,) float64, of a probe: the probability of its `tokens`
    probes: tuple["Prediction", ...] = field(default=())  # of the probes, in their order

    def at(self, wanted: Positions) -> "Prediction":
        """What it says of `wanted`, in that order; each of them must have been predicted."""
        wanted = np.asarray(wanted, dtype=np.int64)
        index = np.searchsorted(self.positions, wanted)
        found = index < len(self.positions)
        if not found.all() or not np.array_equal(self.positions[index], wanted):
            missing = np.setdiff1d(wanted, self.positions)
            raise NotPredictedError(f"there is no prediction at the positions {missing.tolist()}")
        columns = {
            each.name: getattr(self, each.name) for each in fields(self) if each.name != "probes"
        }
        return replace(
            self,
            **{name: column[index] for name, column in columns.items() if column is not None},
        )

    def among(self, positions: Positions) -> Positions:
        """Those of `positions` that it speaks of: in a window step not every MASK is predicted."""
        return positions[np.isin(positions, self.positions, assume_unique=True)]
