"""DAEDAL: grow an all-MASK canvas until it looks long enough, then denoise; insert if unsure."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from rho_eos.base.settings import setting
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.canvas import Canvas, Positions, no_positions
from rho_eos.decoding.commit import CommitParams
from rho_eos.decoding.edits import Append, Edit, Insert, Trim
from rho_eos.decoding.expansion import RegionParams
from rho_eos.decoding.params import LONGEST
from rho_eos.decoding.policy import Keeps, Policy, Step, Windowed
from rho_eos.decoding.prediction import Needs, Prediction
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
class Daedal(Windowed, Policy):
    """Grows an empty canvas first, then denoises and inserts MASKs where it is unsure.

    docs/method.md §4; with the density signal it is the two-stage cell of §3. It never shrinks.
    Near L_max an insertion pushes the end of the canvas, committed or not, over the edge.
    """

    name = "daedal"
    Params = DaedalParams
    edits = (Append, Insert, Trim)
    keeps = Keeps.PREFIX
    params: DaedalParams

    def __init__(self, params: DaedalParams, special: SpecialTokens) -> None:
        super().__init__(params, special)
        self.signal = SIGNALS[params.signal]
        self.needs = Needs(whole_canvas=params.signal == "confidence")
        self.growing = True

    def must_see_all(self, step: int) -> bool:  # noqa: ARG002
        return self.growing

    def step(self, canvas: Canvas, prediction: Prediction, commit: Positions) -> Step:
        number = self.signal(canvas, prediction)
        if self.growing:
            return Step(self._grow(canvas, number), number, commit=no_positions())
        return Step(self._insert(canvas, prediction, commit, number), number)

    def _grow(self, canvas: Canvas, number: float | None) -> tuple[Edit, ...]:
        room = self.params.max_new_tokens - canvas.length
        if number is not None and number < self.params.rho_low and room > 0:
            return (Append(min(self.params.expansion_base, room)),)
        self.growing = False
        tail = min(COMMITTED_TAIL, room)
        return (Append(tail, token=self.special.eos),) if tail > 0 else ()

    def _insert(
        self, canvas: Canvas, prediction: Prediction, commit: Positions, number: float | None
    ) -> tuple[Edit, ...]:
        """Replace the least confident MASK of the block by several, if it is unsure enough."""
        params = self.params
        limit = params.max_new_tokens
        if number is None or number >= params.rho_high or canvas.length >= limit:
            return ()
        block = canvas.open_masks(params.block_length, params.sub_block_length)
        left = prediction.at(np.setdiff1d(block, commit, assume_unique=True))
        if len(left.positions) == 0 or left.confidence.min() >= INSERT_BELOW:
            return ()
        behind = int(left.positions[np.argmin(left.confidence)]) + 1
        count = min(params.expansion_base - 1, limit - behind)
        overflow = canvas.length + count - limit
        edits: tuple[Edit, ...] = (Insert(behind, count),) if count > 0 else ()
        return (*edits, Trim(overflow)) if overflow > 0 else edits
