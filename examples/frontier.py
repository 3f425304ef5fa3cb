"""Frontier: room only where it is needed next (ours, docs/method.md §11)."""

import numpy as np

from rho_eos.base.outputs import StepRecord
from rho_eos.base.settings import setting
from rho_eos.decoding.commit import CommitParams, commit_by_threshold
from rho_eos.decoding.edits import Append, Edit, Trim
from rho_eos.decoding.params import LONGEST
from rho_eos.decoding.policy import Policy, Positions, Prediction, Step, View
from rho_eos.decoding.registry import register_policy
from rho_eos.decoding.signal import density

LEAST_DROPPED = 8
SPARE = 32


class FrontierParams(CommitParams):
    ahead: int = setting(64, "MASKs to have open while no end is in sight", ge=1, le=LONGEST)
    margin: int = setting(16, "MASKs to keep behind the end of the text", ge=0, le=LONGEST)


@register_policy
class Frontier(Policy):
    name = "frontier"
    title = "Frontier"
    summary = "Keeps a stretch of MASKs ahead of the text, and a short margin once its end is seen."
    Params = FrontierParams
    edits = (Append, Trim)
    windows = True
    params: FrontierParams

    @classmethod
    def explain(cls, params: FrontierParams, record: StepRecord) -> str:
        if record.change > 0:
            return (
                f"No end in sight and fewer than {params.ahead} MASKs open: {record.change} more."
            )
        if record.change < 0:
            return f"The end is in sight: {-record.change} of the MASKs behind it are dropped."
        return "The length holds."

    def commit(self, view: View, prediction: Prediction) -> Positions:
        return commit_by_threshold(view, prediction, self.params, self.special)

    def step(self, view: View, prediction: Prediction) -> Step:
        commit = self.commit(view, prediction)
        rho = density(view, prediction, self.special.eos)
        return Step(commit, self._edits(view, prediction, commit), rho)

    def _edits(self, view: View, prediction: Prediction, commit: Positions) -> tuple[Edit, ...]:
        params = self.params
        ending = ending_masks(view, prediction, self.special.eos)
        if ending is None:
            room = params.max_new_tokens - view.length
            missing = params.ahead - len(view.masked)
            return (Append(min(missing + SPARE, room)),) if missing > 0 and room > 0 else ()
        open_ = np.setdiff1d(ending, commit, assume_unique=True)
        trailing = len(open_) and open_[-1] == view.length - 1
        spare = view.length - params.min_new_tokens
        count = min(len(ending) - params.margin, len(open_), spare)
        # What is dropped must be one run at the end of the canvas.
        if not trailing or count < LEAST_DROPPED:
            return ()
        run = open_[-count:]
        return (Trim(count),) if run[0] == view.length - count else ()


def ending_masks(view: View, prediction: Prediction, eos: int) -> Positions | None:
    """The MASKs at the end of the canvas that would be EOS, among EOS that are committed.

    None: the last position is neither, so no end is in sight.
    """
    end = end_in_sight(view, prediction, eos)
    return None if end is None else view.masked[np.searchsorted(view.masked, end) :]


def end_in_sight(view: View, prediction: Prediction, eos: int) -> int | None:
    """Where the EOS at the end of the canvas begin, implicit and committed ones; None: nowhere."""
    ends = view.canvas == eos
    ends[view.masked] = prediction.at(view.masked).token == eos
    return int(np.max(np.flatnonzero(~ends), initial=-1)) + 1 if ends[-1] else None
