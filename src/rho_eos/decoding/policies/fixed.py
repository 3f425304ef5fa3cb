"""Fixed length: LLaDA's own schedule, or the τ rule as the fair control for ρ-EOS."""

from typing import Self

import numpy as np
from pydantic import model_validator

from rho_eos.base.outputs import StepRecord
from rho_eos.base.settings import setting
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.commit import (
    CommitParams,
    commit_by_threshold,
    first_open_block,
    most_confident,
    with_ends_last,
)
from rho_eos.decoding.params import LONGEST
from rho_eos.decoding.policy import Policy, Positions, Prediction, Step, View
from rho_eos.decoding.registry import register_policy
from rho_eos.decoding.signal import density


class FixedParams(CommitParams):
    steps: int | None = setting(
        None,
        "commit an equal share in each of so many steps, instead of the τ rule",
        ge=1,
        le=LONGEST,
    )

    @property
    def longest(self) -> int:
        return self.initial_length

    @model_validator(mode="after")
    def _check_steps(self) -> Self:
        length = self.initial_length
        ok = self.steps is None or self.steps <= length
        self._check("steps", ok, f"at most the length, {length}")
        return self


@register_policy
class Fixed(Policy):
    """docs/method.md §5. The length never changes; ρ is only recorded, for the figures."""

    name = "fixed"
    title = "Fixed length"
    summary = "The canvas keeps the length it starts with."
    Params = FixedParams
    windows = True
    infills = True
    params: FixedParams

    def __init__(self, params: FixedParams, special: SpecialTokens) -> None:
        super().__init__(params, special)
        self.shares: list[int] | None = None
        if params.steps is not None:
            shares = commits_per_step(params.initial_length, params.steps, params.block_length)
            self.shares, self.made = shares, np.cumsum(shares)

    @classmethod
    def explain(cls, params: FixedParams, record: StepRecord) -> str:  # noqa: ARG003
        return "The length is fixed, whatever ρ says."

    def step(self, view: View, prediction: Prediction) -> Step:
        rho = density(view, prediction, self.special.eos)
        return Step(self.commit(view, prediction), signal=rho)

    def commit(self, view: View, prediction: Prediction) -> Positions:
        params = self.params
        if self.shares is None:
            return commit_by_threshold(view, prediction, params, self.special)
        candidates = prediction.at(first_open_block(view.masked, params.block_length))
        if params.defer_eos:
            candidates = with_ends_last(candidates, self.special)
        # The share of the step that brings it from what is committed to what comes next.
        committed = params.initial_length - int(np.count_nonzero(view.canvas == self.special.mask))
        share = self.shares[int(np.searchsorted(self.made, committed, side="right"))]
        return most_confident(candidates, share)


def commits_per_step(length: int, steps: int, block_length: int | None) -> list[int]:
    """How many MASKs each step commits: steps shared equally by the blocks, MASKs by their steps.

    A remainder goes to the first ones. A block never gets more steps than it has MASKs, nor none.
    """
    block_length = block_length or length
    blocks = [min(block_length, length - start) for start in range(0, length, block_length)]
    return [
        share
        for size, block_steps in zip(blocks, _equal_shares(steps, len(blocks)), strict=True)
        for share in _equal_shares(size, int(np.clip(block_steps, 1, size)))
    ]


def _equal_shares(total: int, parts: int) -> list[int]:
    return [total // parts + (part < total % parts) for part in range(parts)]
