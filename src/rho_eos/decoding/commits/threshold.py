"""The τ rule of the paper (docs/method.md §2), which most published samplers use."""

from rho_eos.base.settings import setting
from rho_eos.decoding.canvas import Canvas, Positions
from rho_eos.decoding.commit import CommitParams, CommitRule, above_threshold
from rho_eos.decoding.prediction import Prediction
from rho_eos.decoding.registry import register_commit

TAU = "commit every candidate more confident than this (τ)"


class ThresholdParams(CommitParams):
    threshold: float = setting(0.9, TAU, gt=0, le=1)
    tie: float = setting(
        0.0,
        "where no candidate is more confident than τ, those within this of the surest one tie "
        "with it, and the first of them is committed",
        ge=0,
        le=1,
    )


@register_commit
class Threshold(CommitRule):
    """Commits every candidate more confident than τ, or else the surest one."""

    name = "threshold"
    Params = ThresholdParams
    params: ThresholdParams

    def __call__(self, canvas: Canvas, candidates: Prediction) -> Positions:  # noqa: ARG002
        params = self.params
        return above_threshold(
            self.deferring(candidates), params.threshold, params.tie, params.order
        )
