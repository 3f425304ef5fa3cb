"""Fixed length: LLaDA's own schedule, or the τ rule as the fair control for ρ-EOS."""

import numpy as np

from rho_eos.config import DecodeParams
from rho_eos.decoding.commit import (
    commit_by_threshold,
    first_open_block,
    most_confident,
    with_ends_last,
)
from rho_eos.decoding.policy import Hold, Prediction, SpecialTokens, Step, View
from rho_eos.decoding.signal import density


class Fixed:
    """METHOD §5. The length never changes; ρ is only recorded, for the figures."""

    needs_whole_canvas = False

    def __init__(self, params: DecodeParams, special: SpecialTokens) -> None:
        self.params = params
        self.special = special
        self.shares = (
            commits_per_step(params.initial_length, params.steps, params.block_length)
            if params.steps is not None
            else None
        )

    def step(self, view: View, prediction: Prediction) -> Step:
        params = self.params
        rho = density(view, prediction, self.special.eos)
        if self.shares is None:
            commit = commit_by_threshold(
                view,
                prediction,
                self.special,
                params.threshold,
                params.block_length,
                params.defer_eos,
            )
        else:
            candidates = prediction.at(first_open_block(view.masked, params.block_length))
            if params.defer_eos:
                candidates = with_ends_last(candidates, self.special)
            commit = most_confident(candidates, self.shares[view.step])
        return Step(commit, Hold(), rho)


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
