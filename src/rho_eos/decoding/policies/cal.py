"""CAL: try lengths for a gap before anything is written in it, and keep the best (method.md §12).

As published the best length is the one at which the model is surest of the gap (`evidence`
confidence). Evidence suffix is [ours], and the default: the one at which the text behind the gap
surprises the model least.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from rho_eos.base.outputs import StepRecord
from rho_eos.base.settings import setting
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.commit import CommitParams, commit_by_threshold
from rho_eos.decoding.edits import Delete, Edit, Insert
from rho_eos.decoding.params import LONGEST
from rho_eos.decoding.policy import Needs, Policy, Positions, Prediction, Step, View, no_tokens
from rho_eos.decoding.registry import register_policy

PUBLISHED = {"patience": 4}


class CalParams(CommitParams):
    initial_length: int = setting(8, "MASKs that a gap starts with", ge=1, le=LONGEST)
    max_new_tokens: int = setting(
        64, "most MASKs, of all gaps together; at most what the context leaves", ge=1, le=LONGEST
    )
    evidence: Literal["confidence", "suffix"] = setting(
        "suffix",
        "what speaks for a length: confidence in the gap (as published), or how well the text "
        "behind it follows",
    )
    calibrated: bool = setting(True, "divide confidence by what it is at that length anyway")
    behind: int = setting(8, "tokens behind the gap that evidence suffix looks at", ge=1, le=1024)
    patience: int = setting(
        8,
        "lengths that are no better before a direction is given up, "
        f"{PUBLISHED['patience']} with evidence confidence",
        ge=1,
        le=LONGEST,
    )
    stride: int = setting(1, "difference of the lengths that are tried", ge=1, le=LONGEST)

    @classmethod
    def _defaults(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        published = PUBLISHED if given.get("evidence") == "confidence" else {}
        return {**published, **super()._defaults(given)}


@register_policy
class Cal(Policy):
    """`signal` is the score of the length that a step tried; None once the search is over."""

    name = "cal"
    title = "CAL"
    summary = "Tries lengths for each gap before it writes, and keeps the one with most evidence."
    Params = CalParams
    edits = (Insert, Delete)
    infills = True
    params: CalParams

    def __init__(self, params: CalParams, special: SpecialTokens) -> None:
        super().__init__(params, special)
        self.needs = Needs(expected=params.evidence == "suffix")
        self.gap = 0  # the one that is measured
        self.search: Climb | None = None  # of its length
        self.searching = True

    @property
    def windows(self) -> bool:  # type: ignore[override]
        return not self.searching

    @classmethod
    def signal_name(cls, params: CalParams) -> str:
        return "confidence" if params.evidence == "confidence" else "fit of the text behind"

    @classmethod
    def explain(cls, params: CalParams, record: StepRecord) -> str:
        if record.signal is None and not record.committed:
            return "No text behind this gap says how long it is: " + (
                "it gets all the room that is left." if record.change else "its length holds."
            )
        if record.signal is None:
            return "The length is found; what the model is sure of is written."
        now = f"{cls.signal_name(params)} = {record.signal:.3f}"
        if not record.change:
            return f"{now}: the best length was the last one tried."
        direction = "longer" if record.change > 0 else "shorter"
        return f"{now} at this length: a {direction} one is tried next, or was the best."

    def hides(self, view: View) -> Positions:
        """The first tokens behind the gap, which the model is asked about."""
        self._skip(view)
        if not self.searching or self.params.evidence != "suffix":
            return no_tokens()
        start = int(self._open(view)[-1]) + 1
        given = np.ones(view.length + len(view.suffix), dtype=bool)
        given[: view.length] = False if view.gaps is None else view.gaps < 0
        end = min(start + self.params.behind, len(given))
        run = given[start:end]
        return start + np.flatnonzero(np.logical_and.accumulate(run))

    def commit(self, view: View, prediction: Prediction) -> Positions:
        return commit_by_threshold(view, prediction, self.params, self.special)

    def step(self, view: View, prediction: Prediction) -> Step:
        self._skip(view)
        if not self.searching:
            return Step(self.commit(view, prediction))
        open_ = self._open(view)
        length, params = len(open_), self.params
        others = view.length - view.given - length
        longest = params.max_new_tokens - others
        if params.evidence == "suffix" and not len(self.hides(view)):
            # No text speaks for a length. At the very end there is EOS: it gets all the room.
            at_end = int(open_[-1]) == view.length - 1 and not len(view.suffix)
            self._go_on(view)
            return Step(no_tokens(), _resized(open_, longest if at_end else length))
        if self.search is None:
            shortest = max(1, params.min_new_tokens - others)
            self.search = Climb(length, params.stride, params.patience, shortest, longest)
        score = self._score(view, prediction, open_)
        wanted = self.search.next(score)
        if wanted is None:
            wanted = self.search.best
            self._go_on(view)
        return Step(no_tokens(), _resized(open_, wanted), signal=score)

    def _open(self, view: View) -> Positions:
        """The MASKs of the gap that is measured."""
        if view.gaps is None:
            return view.masked
        return view.masked[view.gaps[view.masked] == self.gap]

    def _score(self, view: View, prediction: Prediction, open_: Positions) -> float:
        if self.params.evidence == "confidence":
            mean = float(np.mean(prediction.at(open_).confidence))
            return mean / length_bias(len(open_)) if self.params.calibrated else mean
        behind = prediction.at(self.hides(view)).expected
        assert behind is not None
        return float(np.mean(np.log(np.maximum(behind, 1e-9)))) if len(behind) else 0.0

    def _skip(self, view: View) -> None:
        """Past gaps whose length is known."""
        while self.searching and self.gap in view.sized:
            self._go_on(view)

    def _go_on(self, view: View) -> None:
        """The next gap is measured, if there is one."""
        self.search = None
        self.gap += 1
        self.searching = view.gaps is not None and self.gap <= int(view.gaps.max())


class Climb:
    """The published search: up while it gets better, then down; a direction ends by patience."""

    def __init__(self, start: int, stride: int, patience: int, shortest: int, longest: int) -> None:
        self.start, self.stride, self.patience = start, stride, patience
        self.shortest, self.longest = shortest, longest
        self.length = self.best = start
        self.best_score = -math.inf
        self.direction = 1
        self.worse = 0

    def next(self, score: float) -> int | None:
        """The score of the length that was tried last → the next one to try, if any."""
        if score > self.best_score:
            self.best, self.best_score, self.worse = self.length, score, 0
        else:
            self.worse += 1
        self.length += self.direction * self.stride
        if self.direction > 0 and (self.worse >= self.patience or self.length > self.longest):
            self.direction, self.worse = -1, 0
            self.length = self.start - self.stride
        if self.worse >= self.patience or self.length < self.shortest:
            return None
        return self.length


def length_bias(length: int) -> float:
    """B(L), the mean confidence at a length that is not the right one, as the authors fitted it."""
    return 1.0 * math.exp(-1.77 * length) + 0.56 * math.exp(-0.06 * length) + 0.24


def _resized(open_: Positions, wanted: int) -> tuple[Edit, ...]:
    """A gap with so many MASKs: more at its beginning, or fewer at its end."""
    change = wanted - len(open_)
    if change > 0:
        return (Insert(int(open_[0]), change),)
    return (Delete(open_[change:]),) if change else ()
