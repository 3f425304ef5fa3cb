"""Blocks until EOS: dLLM-Var's rule without its cache (docs/method.md §11).

For checkpoints that were trained to end exactly; on others it is a baseline.
"""

import numpy as np

from rho_eos.base.outputs import StepRecord
from rho_eos.base.settings import setting
from rho_eos.decoding.commit import CommitParams, commit_by_threshold
from rho_eos.decoding.edits import Append, Edit
from rho_eos.decoding.params import LONGEST
from rho_eos.decoding.policy import Policy, Positions, Prediction, Step, View
from rho_eos.decoding.registry import register_policy
from rho_eos.decoding.signal import density


class BlocksParams(CommitParams):
    block_length: int | None = setting(
        None, "commit within one part of a block at a time; none: anywhere", ge=1, le=LONGEST
    )
    initial_length: int = setting(64, "MASKs in a block", ge=1, le=LONGEST)


@register_policy
class Blocks(Policy):
    name = "blocks"
    title = "Blocks until EOS"
    summary = "Fills one block of MASKs, and appends the next as long as no end of text is in it."
    Params = BlocksParams
    edits = (Append,)
    params: BlocksParams

    @classmethod
    def explain(cls, params: BlocksParams, record: StepRecord) -> str:  # noqa: ARG003
        if record.change:
            return f"The block is full and holds no end of text: the next {record.change} MASKs."
        if record.masks > len(record.committed):
            return "The block is not full yet."
        return "The block is full: the text has ended, or the canvas is as long as it may be."

    def step(self, view: View, prediction: Prediction) -> Step:
        commit = commit_by_threshold(view, prediction, self.params, self.special)
        rho = density(view, prediction, self.special.eos)
        return Step(commit, self._next_block(view, prediction, commit), rho)

    def _next_block(
        self, view: View, prediction: Prediction, commit: Positions
    ) -> tuple[Edit, ...]:
        tokens = np.concatenate((view.canvas, prediction.at(commit).token))
        room = self.params.max_new_tokens - view.length
        ended = self.special.is_end(tokens).any()
        if len(commit) < len(view.masked) or ended or room <= 0:
            return ()
        return (Append(min(self.params.initial_length, room)),)
