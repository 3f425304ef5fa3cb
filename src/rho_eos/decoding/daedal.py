"""DAEDAL: grow an all-MASK canvas until it looks long enough, then denoise; insert if unsure."""

import numpy as np

from rho_eos.config import DecodeParams
from rho_eos.decoding.commit import commit_by_threshold, first_open_block
from rho_eos.decoding.policy import (
    Append,
    Edit,
    Hold,
    Insert,
    Positions,
    Prediction,
    SpecialTokens,
    Step,
    View,
)
from rho_eos.decoding.signal import SIGNALS

COMMITTED_TAIL = 16
INSERT_BELOW = 0.1


class Daedal:
    """METHOD §4; with the density signal it is the two-stage cell of §3. It never shrinks.

    `region` holds two thresholds: stage 1 grows below the first, stage 2 inserts below the second.
    """

    def __init__(self, params: DecodeParams, special: SpecialTokens) -> None:
        self.params = params
        self.special = special
        self.signal = SIGNALS[params.resolved_signal]
        self.needs_whole_canvas = params.resolved_signal == "confidence"
        self.growing = True

    def step(self, view: View, prediction: Prediction) -> Step:
        number = self.signal(view, prediction, self.special.eos)
        if self.growing:
            return Step(np.empty(0, dtype=np.int64), self._grow(view, number), number)
        params = self.params
        commit = commit_by_threshold(
            view, prediction, self.special, params.threshold, params.block_length, params.defer_eos
        )
        return Step(commit, self._insert(view, prediction, commit, number), number)

    def _grow(self, view: View, number: float | None) -> Edit:
        room = self.params.max_new_tokens - view.length
        if number is not None and number < self.params.region[0] and room > 0:
            return Append(min(self.params.expansion_base, room))
        self.growing = False
        return Append(min(COMMITTED_TAIL, room), committed_eos=True) if room > 0 else Hold()

    def _insert(
        self, view: View, prediction: Prediction, commit: Positions, number: float | None
    ) -> Edit:
        params = self.params
        if number is None or number >= params.region[1] or view.length >= params.max_new_tokens:
            return Hold()
        block = first_open_block(view.masked, params.block_length)
        left = prediction.at(np.setdiff1d(block, commit, assume_unique=True))
        if len(left.positions) == 0 or left.confidence.min() >= INSERT_BELOW:
            return Hold()
        at = int(left.positions[np.argmin(left.confidence)])
        return Insert(params.expansion_base, at, params.max_new_tokens)
