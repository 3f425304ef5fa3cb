"""ρ-EOS: one stage, both directions. Every forward denoises and says whether the length fits."""

from typing import Literal

import numpy as np

from rho_eos.base.settings import setting
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.commit import CommitParams, commit_by_threshold
from rho_eos.decoding.edits import Append, Edit, Trim
from rho_eos.decoding.expansion import ExpansionParams, expansion_factor
from rho_eos.decoding.policy import Needs, Policy, Positions, Prediction, Step, View
from rho_eos.decoding.registry import register_policy
from rho_eos.decoding.signal import SIGNALS


class RhoEosParams(ExpansionParams, CommitParams):
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
class RhoEos(Policy):
    """docs/method.md §2; with the confidence signal it is the single-stage rival of §3."""

    name = "rho-eos"
    title = "ρ-EOS"
    summary = (
        "The canvas grows while few open positions would be EOS, and shrinks while many would."
    )
    Params = RhoEosParams
    edits = (Append, Trim)
    windows = True
    params: RhoEosParams

    def __init__(self, params: RhoEosParams, special: SpecialTokens) -> None:
        super().__init__(params, special)
        self.signal = SIGNALS[params.signal]
        self.needs = Needs(whole_canvas=params.signal == "confidence")
        self.decided = -1  # the step of the last decision
        self.decisions = 0

    def commit(self, view: View, prediction: Prediction) -> Positions:
        return commit_by_threshold(view, prediction, self.params, self.special)

    def step(self, view: View, prediction: Prediction) -> Step:
        commit = self.commit(view, prediction)
        rho = self.signal(view, prediction, self.special.eos)
        edits = self._edits(view, prediction, commit, rho)
        self.decided, self.decisions = view.step, self.decisions + 1
        return Step(commit, edits, rho)

    def _edits(
        self, view: View, prediction: Prediction, commit: Positions, rho: float | None
    ) -> tuple[Edit, ...]:
        params = self.params
        low, high = params.region
        may_change = view.length < params.max_new_tokens and self.decisions < params.horizon
        if rho is None or not may_change or low <= rho <= high:
            return ()
        if rho < low:
            # With a cache the forwards since the last decision had none: this one makes up for
            # them. Room that is too much costs little; MASKs dropped in haste are the answer's.
            count = expansion_factor(rho, params, forwards=view.step - self.decided)
            return (Append(min(count, params.max_new_tokens - view.length)),)
        spare = view.length - params.min_new_tokens
        count = min(expansion_factor(rho, params), trailing_masks(view, commit), spare)
        if params.spare_content:
            tokens = prediction.at(view.masked).token
            count = min(count, trailing(tokens == self.special.eos))
        return (Trim(count),) if count > 0 else ()


def trailing_masks(view: View, commit: Positions) -> int:
    """How many MASKs stand at the end of the canvas once `commit` is written."""
    still_masked = np.setdiff1d(view.masked, commit, assume_unique=True)
    # Counted from the end, the k-th trailing MASK must sit at position L - 1 - k.
    expected = np.arange(view.length - len(still_masked), view.length)
    return trailing(still_masked == expected)


def trailing(flags: np.ndarray) -> int:
    """How many at the end are true."""
    return int(len(flags) if flags.all() else np.argmin(flags[::-1]))
