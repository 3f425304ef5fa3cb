"""Scout: read the length on a long canvas, and write on a short one where the model writes the same
there (ours, docs/method.md §11)."""

from collections.abc import Mapping
from math import ceil
from typing import Any

import numpy as np

from rho_eos.base.settings import setting
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.canvas import Canvas, Positions, no_positions
from rho_eos.decoding.commit import CommitParams
from rho_eos.decoding.edits import Append, Edit, Trim
from rho_eos.decoding.look import LookParams
from rho_eos.decoding.params import LONGEST, NO_CACHE
from rho_eos.decoding.policy import Policy, Step, Windowed
from rho_eos.decoding.prediction import Prediction, Probe
from rho_eos.decoding.registry import register_policy
from rho_eos.decoding.signal import density, end_in_sight, trailing_masks, will_end

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


class ScoutParams(LookParams, CommitParams):
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

    @classmethod
    def _defaults(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """With the cache, room costs something in refreshes only, and to make it takes one."""
        cached = CACHED if given.get("cache", NO_CACHE) != NO_CACHE else {}
        return {**cached, **super()._defaults(given)}

    @property
    def next(self) -> int:
        """How many MASKs are written next: whole blocks."""
        block = self.block_length or 1
        return ceil(NEXT / block) * block

    def room(self, first: int) -> int:
        """How long a canvas is with its first MASK at `first`: what is written next, and
        `ahead`."""
        return first - first % (self.block_length or 1) + self.next + self.ahead


@register_policy
class Scout(Windowed, Policy):
    """Reads the length on a long canvas, and writes on a short one where the text is the same."""

    name = "scout"
    Params = ScoutParams
    edits = (Append, Trim)
    params: ScoutParams

    def __init__(self, params: ScoutParams, special: SpecialTokens) -> None:
        super().__init__(params, special)
        self.goal = params.first_length  # nothing is committed on a canvas shorter than this
        self.compared = False  # a short canvas with a long one
        self.wide = False  # a short canvas changes what the model writes: room for all of it stays
        self.expected: int | None = None  # where the text ends, as far as it was seen
        self.furthest = 0  # of the ends that were in sight
        self.doubted: int | None = None  # the early end that was looked into, once
        self.note = ""  # what this step found out

    def must_see_all(self, step: int) -> bool:  # noqa: ARG002
        return self.goal > 0

    def probes(self, canvas: Canvas) -> list[Probe]:
        """Beside the first long canvas: what the model foretells on a short one."""
        spare = canvas.length - self.params.next
        if self.compared or self.expected is not None or not self.params.trust or spare <= 0:
            return []
        short = canvas.edit((Trim(spare),), canvas.length).canvas
        return [Probe(short, short.masked)]

    def step(self, canvas: Canvas, prediction: Prediction, commit: Positions) -> Step:
        self.note = ""
        rho = density(canvas, prediction)
        end = end_in_sight(canvas, prediction)
        self._look(canvas, prediction, end)
        missing = self._wanted - canvas.length
        if missing > 0:
            return Step((Append(missing),), rho, no_positions(), note=self.note)
        self._believe(canvas, end)
        return Step(self._edits(canvas, prediction, commit, end), rho, note=self.note)

    @property
    def _wanted(self) -> int:
        return min(self.goal, self.params.max_new_tokens)

    def _look(self, canvas: Canvas, prediction: Prediction, end: int | None) -> None:
        """Decide how long the canvas has to be before this step may write (`goal`; 0: it may)."""
        if self.expected is not None:
            if self.doubted is None and end is not None and self._is_early(canvas, end):
                self.doubted, self.goal = end, self.expected + self.params.margin
            return
        for foretold in prediction.probes:
            self.compared = True
            share = confirmed(foretold, prediction)
            self.wide = share < self.params.trust
            room = ROOM_FOR_ALL if self.wide else ROOM_AHEAD
            short, long = len(foretold.positions), canvas.length
            self.note = f"{long} MASKs confirm {percent(share)} of what {short} foretold: {room}"
        clear = end is not None and end <= CLEAR * canvas.length
        if not clear and self.params.trust and (self.wide or not self.compared):
            self.goal = self.params.longest_look

    def _is_early(self, canvas: Canvas, end: int) -> bool:
        """Whether the text is about to end sooner than expected, on a canvas too short for more."""
        assert self.expected is not None
        ended = self.special.is_end(canvas.cells).any()
        return not ended and canvas.length < self.expected and self.expected - end >= DOUBTFUL

    def _believe(self, canvas: Canvas, end: int | None) -> None:
        """Take over what a canvas says that is long enough, or that agrees with a longer one.

        Where a short canvas changes the text, an end that comes nearer does not: a model that fits
        its text to its canvas would bring it nearer, a little in each step.
        """
        if self.goal and self.doubted is not None:
            later = end is None or end - self.doubted >= DOUBTFUL
            self.wide |= later
            self.note = f"The text is longer here: {ROOM_FOR_ALL}" if later else NO_LONGER
        self.furthest = max(self.furthest, end or 0)
        if end is None:
            self.expected = max(self.expected or 0, canvas.length)
        else:
            self.expected = self.furthest if self.wide else end
        self.goal = 0

    def _edits(
        self, canvas: Canvas, prediction: Prediction, commit: Positions, end: int | None
    ) -> tuple[Edit, ...]:
        assert self.expected is not None
        length = canvas.length
        left = np.setdiff1d(canvas.masked, commit, assume_unique=True)
        needed = self._needed(int(left[0]) if len(left) else length, end)
        if end is None and length < needed:
            room = self.params.max_new_tokens - length
            if room <= 0 or will_end(canvas, prediction, commit):
                return ()
            return (Append(min(needed - length, room)),)
        spare = length - self.params.min_new_tokens
        count = min(length - needed, trailing_masks(canvas, commit), spare)
        return (Trim(count),) if count >= LEAST_DROPPED else ()

    def _needed(self, first: int, end: int | None) -> int:
        """How long a canvas with its first MASK at `first` has to be: it is cut to that length, or
        grows to it where no end is in sight."""
        assert self.expected is not None
        next_, margin = self.params.room(first), self.params.margin
        if not self.wide:
            return next_ if end is None else min(next_, end + margin)
        roomy = max(margin, ROOMY)
        if end is None:
            return max(next_, self.expected + roomy)
        return self.expected + max(roomy, int(ROOMY_SHARE * self.expected))


def percent(share: float) -> str:
    """A share in per cent, rounded down: what falls short of a bound is not shown to reach it."""
    return f"{int(100 * share)}%"


def confirmed(foretold: Prediction, prediction: Prediction) -> float:
    """The share of what was foretold that another canvas foretells too, weighed by confidence."""
    same = prediction.at(foretold.positions).token == foretold.token
    whole = foretold.confidence.sum()
    return float(foretold.confidence[same].sum() / whole) if whole else 0.0
