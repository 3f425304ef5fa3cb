"""Scout: read the length on a long canvas, and write on a short one where the model writes the same
there (ours, docs/method.md §11)."""

from collections.abc import Mapping
from math import ceil
from typing import Any

import numpy as np

from rho_eos.base.outputs import StepRecord
from rho_eos.base.settings import setting
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.commit import TIE, CommitParams, commit_by_threshold
from rho_eos.decoding.edits import Append, Edit, Trim
from rho_eos.decoding.params import LONGEST
from rho_eos.decoding.policies.frontier import end_in_sight
from rho_eos.decoding.policies.rho_eos import trailing_masks
from rho_eos.decoding.policy import Policy, Positions, Prediction, Step, View, no_tokens
from rho_eos.decoding.registry import register_policy
from rho_eos.decoding.signal import density

LEAST_DROPPED = 8
NEXT = 32  # MASKs that are written next: so many in whole blocks, one block at least
CACHED = {"ahead": 256, "margin": 16}  # with the cache, where room is cheap and edits are rare
CLEAR = 0.5  # an end within this share of the canvas needs no longer one to be believed
# What stays behind the end where a short canvas is not to be trusted: so many MASKs at least, and
# such a share of the text.
ROOMY, ROOMY_SHARE = 32, 0.5
DOUBTFUL = 16  # an end that comes so much sooner than expected may be a compressed answer's

# What live views say of what was found out.
ROOM_AHEAD = "the model is trusted on a short canvas, with room for what comes next."
ROOM_FOR_ALL = "a short canvas changes the text, so room for all of it stays."
NO_LONGER = "The text is no longer here: the early end was true."


class ScoutParams(CommitParams):
    look: int = setting(
        512,
        "longest canvas that the length is read on; a short one and half of it are tried first",
        ge=1,
        le=LONGEST,
    )
    ahead: int = setting(
        0,
        "MASKs to keep open behind the block that is being written, "
        f"{CACHED['ahead']} with the cache",
        ge=0,
        le=LONGEST,
    )
    margin: int = setting(
        8,
        f"MASKs to keep behind the end of the text, {CACHED['margin']} with the cache; half of the "
        f"text, {ROOMY} at least, where a short canvas changes what the model writes",
        ge=0,
        le=LONGEST,
    )
    trust: float = setting(
        0.9,
        "write on a short canvas where a long one confirms this share of what it foretells, "
        "else keep room for all of the text; 0: trust it without trying",
        ge=0,
        le=1,
    )
    tie: float = setting(0.05, TIE, ge=0, le=1)

    @classmethod
    def _defaults(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """With the cache, room costs something in refreshes only, and to make it takes one."""
        cached = CACHED if given.get("cache") == "window" else {}
        return {**cached, **super()._defaults(given)}

    @property
    def longest_look(self) -> int:
        """Who asks for a longer start gets it where the length is read."""
        return max(self.look, self.initial_length)

    @property
    def half_look(self) -> int:
        return (self.longest_look + 1) // 2

    @property
    def first_length(self) -> int:
        """Short, if it is to be tried whether that changes what the model writes."""
        short = self.next if self.trust else self.half_look
        return max(self.min_new_tokens, min(short, self.half_look, self.max_new_tokens))

    @property
    def starts_anywhere(self) -> bool:
        return self.initial_length <= self.look

    @property
    def next(self) -> int:
        """How many MASKs are written next: whole blocks."""
        block = self.block_length or 1
        return ceil(NEXT / block) * block

    def room(self, first: int) -> int:
        """How long a canvas is whose first MASK is there: what is written next, and `ahead`."""
        return first - first % (self.block_length or 1) + self.next + self.ahead


@register_policy
class Scout(Policy):
    name = "scout"
    title = "Scout"
    summary = (
        "Reads the length on a long canvas, and writes on a short one where the model writes "
        "the same there."
    )
    Params = ScoutParams
    edits = (Append, Trim)
    params: ScoutParams

    def __init__(self, params: ScoutParams, special: SpecialTokens) -> None:
        super().__init__(params, special)
        self.goal = params.first_length  # nothing is committed on a canvas shorter than this
        self.foretold: Prediction | None = None  # by the first canvas, until the length is read
        self.wide = False  # a short canvas changes what the model writes: room for all of it stays
        self.expected: int | None = None  # where the text ends, as far as it was seen
        self.furthest = 0  # of the ends that were in sight
        self.doubted: int | None = None  # the early end that was looked into, once
        self.note = ""  # what this step found out

    @property
    def windows(self) -> bool:  # type: ignore[override]
        return self.goal == 0

    @classmethod
    def explain(cls, params: ScoutParams, record: StepRecord) -> str:  # noqa: ARG003
        if record.change > 0 and record.masks == record.length and not record.committed:
            return f"Nothing is written before the length is read: {record.change} more MASKs."
        if record.change > 0 and not record.committed:
            return f"To see where the text really ends, the canvas grows by {record.change}."
        if record.change > 0:
            return f"The text goes on: {record.change} more MASKs ahead of it."
        if record.change < 0:
            return f"The rest of the canvas is not needed: {-record.change} MASKs are dropped."
        return "The length holds."

    def commit(self, view: View, prediction: Prediction) -> Positions:
        return commit_by_threshold(view, prediction, self.params, self.special)

    def step(self, view: View, prediction: Prediction) -> Step:
        self.note = ""
        rho = density(view, prediction, self.special.eos)
        end = end_in_sight(view, prediction, self.special.eos)
        self._look(view, prediction, end)
        missing = self._wanted - view.length
        if missing > 0:
            return Step(no_tokens(), (Append(missing),), rho, note=self.note)
        self._believe(view, end)
        commit = self.commit(view, prediction)
        return Step(commit, self._edits(view, prediction, commit, end), rho, note=self.note)

    @property
    def _wanted(self) -> int:
        return min(self.goal, self.params.max_new_tokens)

    def _look(self, view: View, prediction: Prediction, end: int | None) -> None:
        """On how long a canvas this step has to be."""
        if self.expected is not None:
            if self.doubted is None and end is not None and self._is_early(view, end):
                self.doubted, self.goal = end, self.expected + self.params.margin
            return
        if view.length < self._wanted:  # a canvas that was given
            return
        trusted = not self.params.trust
        if self.foretold is None:
            self.foretold = prediction
        elif not self.wide:
            share = confirmed(self.foretold, prediction)
            trusted = share >= self.params.trust
            self.wide = not trusted
            room = ROOM_FOR_ALL if self.wide else ROOM_AHEAD
            short, long = len(self.foretold.positions), view.length
            self.note = f"{long} MASKs confirm {percent(share)} of what {short} foretold: {room}"
        clear = end is not None and end <= CLEAR * view.length
        if view.length < self.params.half_look:
            self.goal = self.params.half_look
        elif not clear and not trusted:
            self.goal = self.params.longest_look

    def _is_early(self, view: View, end: int) -> bool:
        """Sooner than was expected, on a canvas without room for all of that; not yet written."""
        assert self.expected is not None
        ended = self.special.is_end(view.canvas).any()
        return not ended and view.length < self.expected and self.expected - end >= DOUBTFUL

    def _believe(self, view: View, end: int | None) -> None:
        """This canvas is long enough, or agrees: what it says counts.

        Where a short canvas changes the text, an end that comes nearer does not: a model that fits
        its text to its canvas would bring it nearer, a little in each step.
        """
        if self.goal and self.doubted is not None:
            later = end is None or end - self.doubted >= DOUBTFUL
            self.wide |= later
            self.note = f"The text is longer here: {ROOM_FOR_ALL}" if later else NO_LONGER
        self.furthest = max(self.furthest, end or 0)
        if end is None:
            self.expected = max(self.expected or 0, view.length)
        else:
            self.expected = self.furthest if self.wide else end
        self.foretold = None
        self.goal = 0

    def _edits(
        self, view: View, prediction: Prediction, commit: Positions, end: int | None
    ) -> tuple[Edit, ...]:
        assert self.expected is not None
        length = view.length
        left = np.setdiff1d(view.masked, commit, assume_unique=True)
        needed = self._needed(int(left[0]) if len(left) else length, end)
        if end is None and length < needed:
            tokens = np.concatenate((view.canvas, prediction.at(commit).token))
            room = self.params.max_new_tokens - length
            if room <= 0 or self.special.is_end(tokens).any():
                return ()
            return (Append(min(needed - length, room)),)
        spare = length - self.params.min_new_tokens
        count = min(length - needed, trailing_masks(view, commit), spare)
        return (Trim(count),) if count >= LEAST_DROPPED else ()

    def _needed(self, first: int, end: int | None) -> int:
        """How long the canvas stays, whose first MASK is there; without an end in sight, gets."""
        assert self.expected is not None
        next_, margin = self.params.room(first), self.params.margin
        if not self.wide:
            return next_ if end is None else min(next_, end + margin)
        roomy = max(margin, ROOMY)
        if end is None:
            return max(next_, self.expected + roomy)
        return self.expected + max(roomy, int(ROOMY_SHARE * self.expected))


def percent(share: float) -> str:
    """Rounded down, so that what falls short of a bound is not shown as reaching it."""
    return f"{int(100 * share)}%"


def confirmed(foretold: Prediction, prediction: Prediction) -> float:
    """The share of what was foretold that another canvas foretells too, weighed by confidence."""
    same = prediction.at(foretold.positions).token == foretold.token
    whole = foretold.confidence.sum()
    return float(foretold.confidence[same].sum() / whole) if whole else 0.0
