"""ρ-EOS: one stage, both directions. Every forward denoises and says whether the length fits."""

import numpy as np

from rho_eos.config import DecodeParams
from rho_eos.decoding.commit import commit_by_threshold
from rho_eos.decoding.expansion import expansion_factor
from rho_eos.decoding.policy import (
    Append,
    Edit,
    Hold,
    Positions,
    Prediction,
    SpecialTokens,
    Step,
    Trim,
    View,
)
from rho_eos.decoding.signal import SIGNALS


class RhoEos:
    """METHOD §2; with the confidence signal it is the single-stage rival of §3."""

    def __init__(self, params: DecodeParams, special: SpecialTokens) -> None:
        self.params = params
        self.special = special
        self.signal = SIGNALS[params.resolved_signal]
        self.needs_whole_canvas = params.resolved_signal == "confidence"

    def step(self, view: View, prediction: Prediction) -> Step:
        params = self.params
        commit = commit_by_threshold(
            view, prediction, self.special, params.threshold, params.block_length, params.defer_eos
        )
        rho = self.signal(view, prediction, self.special.eos)
        return Step(commit, self._edit(view, prediction, commit, rho), rho)

    def _edit(
        self, view: View, prediction: Prediction, commit: Positions, rho: float | None
    ) -> Edit:
        params = self.params
        low, high = params.region
        may_change = view.length < params.max_new_tokens and view.step < params.horizon
        if rho is None or not may_change or low <= rho <= high:
            return Hold()
        count = expansion_factor(rho, params)
        if rho < low:
            return Append(min(count, params.max_new_tokens - view.length))
        spare = view.length - params.min_new_tokens
        count = min(count, trailing_masks(view, commit), spare)
        if params.spare_content:
            tokens = prediction.at(view.masked).token
            count = min(count, trailing(tokens == self.special.eos))
        return Trim(count) if count > 0 else Hold()


def trailing_masks(view: View, commit: Positions) -> int:
    """How many MASKs stand at the end of the canvas once `commit` is written."""
    still_masked = np.setdiff1d(view.masked, commit, assume_unique=True)
    # Counted from the end, the k-th trailing MASK must sit at position L - 1 - k.
    expected = np.arange(view.length - len(still_masked), view.length)
    return trailing(still_masked == expected)


def trailing(flags: np.ndarray) -> int:
    """How many at the end are true."""
    return int(len(flags) if flags.all() else np.argmin(flags[::-1]))
