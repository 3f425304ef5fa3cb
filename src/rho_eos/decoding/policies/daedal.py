"""DAEDAL: grow an all-MASK canvas until it looks long enough, then denoise; insert if unsure."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from rho_eos.base.outputs import StepRecord
from rho_eos.base.settings import setting
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.commit import CommitParams, commit_by_threshold, first_open_block
from rho_eos.decoding.edits import Append, Edit, Insert, Trim
from rho_eos.decoding.expansion import RegionParams
from rho_eos.decoding.params import LONGEST
from rho_eos.decoding.policy import (
    Keeps,
    Needs,
    Policy,
    Positions,
    Prediction,
    Step,
    View,
    figure,
)
from rho_eos.decoding.registry import register_policy
from rho_eos.decoding.signal import SIGNALS

COMMITTED_TAIL = 16
INSERT_BELOW = 0.1


class DaedalParams(RegionParams, CommitParams):
    signal: Literal["confidence", "density"] = setting(
        "confidence", "what is compared with the thresholds"
    )
    rho_low: float = setting(
        0.5, "stage 1 grows below this signal (default with density: 0.4)", ge=0, le=1
    )
    rho_high: float = setting(
        0.9, "stage 2 inserts below this signal (default with density: 0.8)", ge=0, le=1
    )
    expansion_base: int = setting(8, "MASKs added at a time", ge=1, le=LONGEST)

    @classmethod
    def _defaults(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        if given.get("signal") == "density":
            return {"rho_low": 0.4, "rho_high": 0.8}
        return {}


@register_policy
class Daedal(Policy):
    """docs/method.md §4; with the density signal it is the two-stage cell of §3. It never shrinks.

    Near L_max an insertion pushes the end of the canvas, committed or not, over the edge.
    """

    name = "daedal"
    title = "DAEDAL"
    summary = "Grows an empty canvas first, then denoises and inserts MASKs where it is unsure."
    Params = DaedalParams
    edits = (Append, Insert, Trim)
    keeps = Keeps.PREFIX
    params: DaedalParams

    def __init__(self, params: DaedalParams, special: SpecialTokens) -> None:
        super().__init__(params, special)
        self.signal = SIGNALS[params.signal]
        self.needs = Needs(whole_canvas=params.signal == "confidence")
        self.growing = True

    @classmethod
    def explain(cls, params: DaedalParams, record: StepRecord) -> str:
        if record.signal is None:
            return "The length holds."
        low, high, grown = params.rho_low, params.rho_high, record.change
        now = f"{cls.signal_name(params)} = {figure(record.signal, low, high)}"
        if record.action == "expand":
            return f"{now} < {low:g}: the canvas grows by {grown} before anything is written."
        if record.action == "close":
            return f"{now}: long enough. Growing ends, with {grown} EOS behind the canvas."
        if record.action == "insert":
            return f"{now} < {high:g}: MASKs are inserted where the model is most doubtful."
        if record.length >= params.max_new_tokens:
            return f"{now}: the canvas is as long as it may be."
        if record.signal < high:
            return f"{now} < {high:g}, but no MASK is doubtful enough to insert."
        return f"{now}: the end is sure, nothing is inserted."

    @property
    def windows(self) -> bool:  # type: ignore[override]
        return not self.growing

    def commit(self, view: View, prediction: Prediction) -> Positions:
        return commit_by_threshold(view, prediction, self.params, self.special)

    def step(self, view: View, prediction: Prediction) -> Step:
        number = self.signal(view, prediction, self.special.eos)
        if self.growing:
            return Step(np.empty(0, dtype=np.int64), self._grow(view, number), number)
        commit = self.commit(view, prediction)
        return Step(commit, self._insert(view, prediction, commit, number), number)

    def _grow(self, view: View, number: float | None) -> tuple[Edit, ...]:
        room = self.params.max_new_tokens - view.length
        if number is not None and number < self.params.rho_low and room > 0:
            return (Append(min(self.params.expansion_base, room)),)
        self.growing = False
        tail = min(COMMITTED_TAIL, room)
        return (Append(tail, token=self.special.eos),) if tail > 0 else ()

    def _insert(
        self, view: View, prediction: Prediction, commit: Positions, number: float | None
    ) -> tuple[Edit, ...]:
        """Replace the least confident MASK of the block by several, if it is unsure enough."""
        params = self.params
        limit = params.max_new_tokens
        if number is None or number >= params.rho_high or view.length >= limit:
            return ()
        block = first_open_block(view.masked, params.block_length)
        left = prediction.at(np.setdiff1d(block, commit, assume_unique=True))
        if len(left.positions) == 0 or left.confidence.min() >= INSERT_BELOW:
            return ()
        behind = int(left.positions[np.argmin(left.confidence)]) + 1
        count = min(params.expansion_base - 1, limit - behind)
        overflow = view.length + count - limit
        edits: tuple[Edit, ...] = (Insert(behind, count),) if count > 0 else ()
        return (*edits, Trim(overflow)) if overflow > 0 else edits
