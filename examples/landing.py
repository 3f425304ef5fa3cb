"""Landing: the end of the text read as a change point of P(EOS) (ours, docs/method.md §11)."""

import math

import numpy as np

from rho_eos.base.outputs import StepRecord
from rho_eos.base.settings import setting
from rho_eos.decoding.commit import CommitParams, commit_by_threshold
from rho_eos.decoding.edits import Append, Edit, Trim
from rho_eos.decoding.policies.rho_eos import trailing_masks
from rho_eos.decoding.policy import Policy, Positions, Prediction, Step, View
from rho_eos.decoding.registry import register_policy

LEAST_BEHIND = 8  # MASKs that must lie behind an end for it to count as seen
LEAST_SLACK, LEAST_DROPPED, LEAST_GROWTH = 16, 16, 64


class LandingParams(CommitParams):
    slack_first: float = setting(
        0.5, "room behind the end when nothing is written, as a share of what is left", ge=0, le=4
    )
    slack_last: float = setting(0.1, "the same when nearly all is written", ge=0, le=4)


@register_policy
class Landing(Policy):
    """`signal` is the share of MASKs before the end of the text, as far as it can be seen."""

    name = "landing"
    title = "Landing"
    summary = "Finds where P(EOS) takes over, and lets the room behind that point melt away."
    Params = LandingParams
    edits = (Append, Trim)
    windows = True
    params: LandingParams

    @classmethod
    def signal_name(cls, params: LandingParams) -> str:  # noqa: ARG003
        return "share of MASKs before the end"

    @classmethod
    def explain(cls, params: LandingParams, record: StepRecord) -> str:
        if record.change > 0:
            return f"The end does not show on this canvas: it grows by {record.change}."
        if record.change < 0:
            return f"The text needs less room behind its end: {-record.change} MASKs are dropped."
        if record.length >= params.max_new_tokens:
            return "The canvas is as long as it may be."
        return "The end is in sight and the room behind it is right: the length holds."

    def commit(self, view: View, prediction: Prediction) -> Positions:
        return commit_by_threshold(view, prediction, self.params, self.special)

    def step(self, view: View, prediction: Prediction) -> Step:
        commit = self.commit(view, prediction)
        masks = len(view.masked)
        if not masks:
            return Step(commit)
        end, fits = change_point(prediction.at(view.masked).eos_probability)
        edits = self._edits(view, commit, end) if fits else self._grow(view)
        return Step(commit, edits, signal=end / masks)

    def _grow(self, view: View) -> tuple[Edit, ...]:
        room = self.params.max_new_tokens - view.length
        if room <= 0 or self.special.is_end(view.canvas).any():
            return ()
        return (Append(min(max(LEAST_GROWTH, view.length // 2), room)),)

    def _edits(self, view: View, commit: Positions, end: int) -> tuple[Edit, ...]:
        params = self.params
        written = view.length - len(view.masked)
        share = written / max(1, written + end)
        slack = params.slack_first + (params.slack_last - params.slack_first) * share
        kept = end + max(LEAST_SLACK, math.ceil(slack * end))
        spare = view.length - params.min_new_tokens
        count = min(len(view.masked) - kept, trailing_masks(view, commit), spare)
        return (Trim(count),) if count > LEAST_DROPPED else ()


def change_point(eos_probability: np.ndarray) -> tuple[int, bool]:
    """How many MASKs come before the end of the text, and whether that end is really seen.

    The best split of the MASKs into text, where EOS is unlikely, and padding, where it is likely.
    It is seen if padding remains behind it, and the split is clearly better than "all is text".
    """
    likely = np.clip(eos_probability, 0.02, 0.98)
    text = np.concatenate(([0.0], np.cumsum(np.log(1 - likely))))
    padding = np.concatenate((np.cumsum(np.log(likely)[::-1])[::-1], [0.0]))
    score = text + padding
    end, masks = int(np.argmax(score)), len(likely)
    fits = end <= masks - LEAST_BEHIND and score[end] > score[masks] + 2 * math.log(masks + 1)
    return end, bool(fits)
