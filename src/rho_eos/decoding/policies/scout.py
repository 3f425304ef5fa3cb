"""Scout: read the length on a long canvas, then keep room only where it is needed next, and look
again before believing that the text ends sooner (ours, docs/method.md §11)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rho_eos.decoding.commit import CommitParams, commit_by_threshold
from rho_eos.decoding.edits import Append, Edit, Trim
from rho_eos.decoding.params import LONGEST
from rho_eos.decoding.policies.frontier import end_in_sight
from rho_eos.decoding.policies.rho_eos import trailing_masks
from rho_eos.decoding.policy import Policy, Positions, Prediction, Step, View
from rho_eos.decoding.registry import register_policy
from rho_eos.decoding.signal import density
from rho_eos.outputs import StepRecord
from rho_eos.settings import setting
from rho_eos.tokens import SpecialTokens

SPARE = 8  # MASKs beyond `ahead` that are appended with it, and that may stay
LEAST_DROPPED = 8
CACHED = 256  # `ahead` with the cache
DOUBTFUL = 16  # an end that comes so much sooner than expected may be a compressed answer's


class ScoutParams(CommitParams):
    look: int = setting(512, "canvas on which the length is read first", ge=1, le=LONGEST)
    opening: int = setting(
        32,
        "until so many tokens are written there is room for all of the text and so many more",
        ge=0,
        le=LONGEST,
    )
    ahead: int = setting(
        32, f"MASKs to keep open ahead of the text; {CACHED} with the cache", ge=1, le=LONGEST
    )
    margin: int = setting(8, "MASKs to keep behind the end of the text", ge=0, le=LONGEST)

    @classmethod
    def _defaults(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """With the cache, room costs something in refreshes only, and to make it takes one."""
        cached = {"ahead": CACHED} if given.get("cache") == "window" else {}
        return {**cached, **super()._defaults(given)}

    @property
    def first_length(self) -> int:
        """A shorter canvas would be looked at in vain."""
        return max(self.least_room, min(self.look, self.max_new_tokens))


@register_policy
class Scout(Policy):
    name = "scout"
    title = "Scout"
    summary = (
        "Reads the length on a long canvas, writes on a short one, and looks again before it "
        "believes an early end."
    )
    Params = ScoutParams
    edits = (Append, Trim)
    params: ScoutParams

    def __init__(self, params: ScoutParams, special: SpecialTokens) -> None:
        super().__init__(params, special)
        self.goal = params.look  # nothing is committed on a canvas shorter than this
        self.expected = 0  # where the text ended on the last canvas that had room for it
        self.doubted: int | None = None  # the early end that was looked into, once
        self.wide = False  # it was not true: from then on there is room for all of the text

    @property
    def windows(self) -> bool:  # type: ignore[override]
        return self.goal == 0

    @classmethod
    def explain(cls, params: ScoutParams, record: StepRecord) -> str:  # noqa: ARG003
        if record.change > 0 and not record.committed:
            return f"To see where the text really ends, the canvas grows by {record.change}."
        if record.change > 0:
            return f"The text goes on: {record.change} more MASKs ahead of it."
        if record.change < 0:
            return f"This room is not needed next: {-record.change} MASKs are dropped."
        return "The length holds."

    def commit(self, view: View, prediction: Prediction) -> Positions:
        return commit_by_threshold(view, prediction, self.params, self.special)

    def step(self, view: View, prediction: Prediction) -> Step:
        rho = density(view, prediction, self.special.eos)
        end = end_in_sight(view, prediction, self.special.eos)
        if self.doubted is None and end is not None and self._is_early(view, end):
            self.doubted, self.goal = end, self.expected + self.params.margin
        missing = min(self.goal, self.params.max_new_tokens) - view.length
        if missing > 0:
            return Step(np.empty(0, dtype=np.int64), (Append(missing),), rho)
        self._believe(view, end)
        commit = self.commit(view, prediction)
        return Step(commit, self._edits(view, prediction, commit, end), rho)

    def _is_early(self, view: View, end: int) -> bool:
        """Sooner than was expected, on a canvas without room for all of that."""
        return view.length < self.expected and self.expected - end >= DOUBTFUL

    def _believe(self, view: View, end: int | None) -> None:
        """What this canvas says of the end counts: it is long enough, or agrees."""
        if self.goal and self.doubted is not None:
            self.wide = end is None or end - self.doubted >= DOUBTFUL
        if end is not None:
            self.expected = end
        else:
            self.expected = max(self.expected, view.length)
        self.goal = 0

    def _edits(
        self, view: View, prediction: Prediction, commit: Positions, end: int | None
    ) -> tuple[Edit, ...]:
        params, length = self.params, view.length
        left = np.setdiff1d(view.masked, commit, assume_unique=True)
        written = int(left[0]) if len(left) else length
        ahead = written + params.ahead
        whole = self.expected + params.margin if self.wide else 0
        if end is None and length < max(ahead, whole):
            tokens = np.concatenate((view.canvas, prediction.at(commit).token))
            room = params.max_new_tokens - length
            if room <= 0 or self.special.is_end(tokens).any():
                return ()
            return (Append(min(max(ahead + SPARE, whole) - length, room)),)
        # The first tokens decide how fully a model writes, so they are not written in a hurry.
        opens = written < params.opening
        margin = max(params.margin, params.opening if opens else 0)
        kept = max(ahead + SPARE, self.expected + margin if self.wide or opens else 0)
        if end is not None:
            kept = min(kept, end + margin)
        spare = length - params.min_new_tokens
        count = min(length - kept, trailing_masks(view, commit), spare)
        return (Trim(count),) if count >= LEAST_DROPPED else ()
