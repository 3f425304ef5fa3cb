"""ρ-EOS: one stage, both directions. Every forward denoises and says whether the length fits."""

from typing import Literal

from rho_eos.base.settings import setting
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.canvas import Canvas, Positions
from rho_eos.decoding.edits import Append, Edit, Trim
from rho_eos.decoding.expansion import ExpansionParams, expansion_factor
from rho_eos.decoding.policy import Policy, Step, Windowed
from rho_eos.decoding.prediction import Needs, Prediction
from rho_eos.decoding.registry import register_policy
from rho_eos.decoding.signal import SIGNALS, trailing, trailing_masks


class RhoEosParams(ExpansionParams):
    presets = {
        "asym": {"rho_low": 0.4, "rho_high": 0.8},
        "sym": {"rho_low": 0.2, "rho_high": 0.8},
    }

    preset: Literal["asym", "sym"] = setting(
        "asym", "equilibrium region [rho_low, rho_high]: asym is [0.4, 0.8], sym [0.2, 0.8]"
    )
    signal: Literal["density", "confidence"] = setting(
        "density", "what is compared with the region"
    )
    spare_content: bool = setting(
        False, "drop only MASKs that would become EOS (the paper drops any, E(ρ) from the end)"
    )


@register_policy
class RhoEos(Windowed, Policy):
    """The canvas grows while few open positions would be EOS, and shrinks while many would.

    docs/method.md §2; with the confidence signal it is the single-stage rival of §3.
    """

    name = "rho-eos"
    Params = RhoEosParams
    edits = (Append, Trim)
    params: RhoEosParams

    def __init__(self, params: RhoEosParams, special: SpecialTokens) -> None:
        super().__init__(params, special)
        self.signal = SIGNALS[params.signal]
        self.needs = Needs(whole_canvas=params.signal == "confidence")
        self.decided = -1  # the step of the last decision
        self.decisions = 0

    def step(self, canvas: Canvas, prediction: Prediction, commit: Positions) -> Step:
        rho = self.signal(canvas, prediction)
        edits = self._edits(canvas, prediction, commit, rho)
        self.decided, self.decisions = canvas.step, self.decisions + 1
        return Step(edits, rho)

    def _edits(
        self, canvas: Canvas, prediction: Prediction, commit: Positions, rho: float | None
    ) -> tuple[Edit, ...]:
        params = self.params
        low, high = params.region
        may_change = canvas.length < params.max_new_tokens and self.decisions < params.horizon
        if rho is None or not may_change or low <= rho <= high:
            return ()
        if rho < low:
            # With a cache no forward since the last decision could make one, so this decision
            # stands for all of them. It does so only here, where the canvas grows: too much room
            # costs little, but MASKs that are dropped in haste were the answer's.
            count = expansion_factor(rho, params, forwards=canvas.step - self.decided)
            return (Append(min(count, params.max_new_tokens - canvas.length)),)
        spare = canvas.length - params.min_new_tokens
        count = min(expansion_factor(rho, params), trailing_masks(canvas, commit), spare)
        if params.spare_content:
            tokens = prediction.at(canvas.masked).token
            count = min(count, trailing(tokens == self.special.eos))
        return (Trim(count),) if count > 0 else ()
