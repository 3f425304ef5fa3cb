"""Quantile: a canvas that suffices with a stated probability, by the model's own account (ours)."""

from typing import Any

from rho_eos.base.settings import setting
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.canvas import Canvas, Positions, no_positions
from rho_eos.decoding.curve import Curve, Reading, least_length
from rho_eos.decoding.edits import Append, Edit, Trim
from rho_eos.decoding.look import LookParams
from rho_eos.decoding.policy import Policy, Step, Windowed
from rho_eos.decoding.prediction import Prediction
from rho_eos.decoding.registry import register_policy
from rho_eos.decoding.signal import trailing_masks

CLEAR = 0.5  # a length within this share of the canvas needs no longer one to be believed
LEAST_DROPPED = 8
LEAST_ROOM = 16  # behind the quantile, where a share of it would be less
GROWTH = 0.5  # a canvas that is too short gets so much more of its length


class QuantileParams(LookParams):
    risk: float = setting(
        0.1, "how probable it may be that the text needs more than the canvas", ge=0.001, le=0.999
    )
    reading: Reading = setting(
        "cdf",
        "how lengths are read from P(EOS): cdf, as how sure it is that the text is over by there; "
        "hazard (Survival), as the chance to end just there; last (SMARTCROP), where it was below "
        "1 - risk for the last time",
    )
    room: float = setting(
        0.25,
        "so much of the length is kept free behind it, for models that write less where there is "
        "just enough room",
        ge=0,
        le=16,
    )


@register_policy
class Quantile(Windowed, Policy):
    """Gives the text the room that suffices with probability 1 - risk, read from P(EOS)."""

    name = "quantile"
    Params = QuantileParams
    edits = (Append, Trim)
    params: QuantileParams

    def __init__(self, params: Any, special: SpecialTokens) -> None:
        super().__init__(params, special)
        self.has_looked = False  # nothing is written before

    def must_see_all(self, step: int) -> bool:  # noqa: ARG002
        return not self.has_looked

    def step(self, canvas: Canvas, prediction: Prediction, commit: Positions) -> Step:
        """`signal` is the risk: how probable it is that the text needs more than this canvas."""
        f = Curve.of(canvas, prediction).distribution(self.params.reading)
        enough = least_length(f, 1 - self.params.risk)
        risk = 1 - float(f[-1]) if len(f) else 1.0
        more = min(self.params.longest_look, self.params.max_new_tokens) - canvas.length
        clear = enough is not None and enough <= CLEAR * canvas.length
        if not self.has_looked and not clear and more > 0:
            return Step((Append(more),), risk, no_positions())
        self.has_looked = True
        return Step(self._edits(canvas, commit, enough), risk)

    def _edits(self, canvas: Canvas, commit: Positions, enough: int | None) -> tuple[Edit, ...]:
        if enough is None:
            room = self.params.max_new_tokens - canvas.length
            count = min(max(LEAST_ROOM, int(GROWTH * canvas.length)), room)
            return (Append(count),) if count > 0 else ()
        wanted = enough + max(LEAST_ROOM, int(self.params.room * enough))
        spare = canvas.length - max(wanted, self.params.min_new_tokens)
        count = min(spare, trailing_masks(canvas, commit))
        return (Trim(count),) if count >= LEAST_DROPPED else ()
