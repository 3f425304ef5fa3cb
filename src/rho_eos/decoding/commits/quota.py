"""A number of commits in each step: LLaDA's own schedule, and that of block diffusion models."""

from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from rho_eos.base.settings import setting
from rho_eos.decoding.canvas import COMMIT_STEP, NEVER, Canvas, Positions
from rho_eos.decoding.commit import CommitParams, CommitRule, ranked
from rho_eos.decoding.params import LONGEST
from rho_eos.decoding.prediction import Prediction
from rho_eos.decoding.registry import register_commit


class QuotaParams(CommitParams):
    steps: int | None = setting(
        None,
        "forwards for the whole canvas, shared equally by its blocks; none: one for each token",
        ge=1,
        le=LONGEST,
    )
    steps_per_block: int | None = setting(
        None, "forwards for each block, instead of for the whole canvas", ge=1, le=LONGEST
    )
    spread: Literal["first", "even"] = setting(
        "first",
        "where a block does not divide equally. first: its first steps commit more; even: each "
        "step commits what is left, divided by the steps that are left and rounded (dllm)",
    )
    threshold: float = setting(
        1.0,
        "commit every candidate more confident than this, where those are more than the share",
        gt=0,
        le=1,
    )

    @model_validator(mode="after")
    def _check_steps(self) -> Self:
        longest: int = self.longest  # type: ignore[attr-defined] # of DecodeParams, its other half
        ok = self.steps is None or self.steps <= longest
        self._check("steps", ok, f"at most the length, {longest}")
        return self


@register_commit
class Quota(CommitRule):
    """Commits the surest candidates, an equal share of the block in each of its steps."""

    name = "quota"
    Params = QuotaParams
    implied_by = ("steps", "steps_per_block")
    params: QuotaParams

    def __call__(self, canvas: Canvas, candidates: Prediction) -> Positions:
        params = self.params
        sure = candidates.positions[candidates.confidence > params.threshold]
        share = self._share(canvas)
        if len(sure) >= share:
            return sure
        order = ranked(candidates, params.order)
        if params.defer_eos:  # ends come last, so that every step still has its share
            ends = self.special.is_end(candidates.at(order).token)
            order = np.concatenate((order[~ends], order[ends]))
        return np.sort(order[:share])

    def _share(self, canvas: Canvas) -> int:
        """How many commits the next step of the open block makes."""
        first, end = canvas.open_block(self.params.block_length)
        size = end - first
        if canvas.blocks is not None and canvas.blocks.alignment == "absolute":
            size = canvas.blocks.length  # also where the prompt has begun the block
        steps = self._steps(canvas, first, size)
        written = canvas.column(COMMIT_STEP)[first:end]
        step = min(len(np.unique(written[written != NEVER])), steps - 1)
        if self.params.spread == "even":
            left = len(canvas.open_masks(self.params.block_length))
            return max(1, round(left / (steps - step)))
        return equal_shares(size, steps)[step]

    def _steps(self, canvas: Canvas, first: int, size: int) -> int:
        """The steps of the open block: at least one, and no more than it has cells."""
        params = self.params
        if params.steps_per_block is not None:
            return min(params.steps_per_block, size)
        if params.steps is None:
            return size
        length, before = params.block_length or canvas.length, canvas.before_block
        blocks = -(-(before + (canvas.most or canvas.length)) // length)
        return int(np.clip(equal_shares(params.steps, blocks)[(first + before) // length], 1, size))


def equal_shares(total: int, parts: int) -> list[int]:
    """A whole number divided as equally as it can be; a remainder goes to the first parts."""
    return [total // parts + (part < total % parts) for part in range(parts)]
