"""CAL: try lengths for a gap before anything is written in it, and keep the best (method.md §12).

As published the best length is the one at which the model is surest of the gap (`evidence`
confidence). Evidence suffix is [ours], and the default: the one at which the text behind the gap
surprises the model least. Lengths are tried as probes, several in one forward.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from rho_eos.base.settings import setting
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.canvas import Canvas, Positions, no_positions
from rho_eos.decoding.edits import Delete, Edit, Insert
from rho_eos.decoding.params import LONGEST, DecodeParams
from rho_eos.decoding.policy import Infills, Policy, Step, Windowed
from rho_eos.decoding.prediction import Prediction, Probe
from rho_eos.decoding.registry import register_policy

PUBLISHED = {"patience": 4}
AT_ONCE = 8  # lengths that one forward tries


class CalParams(DecodeParams):
    initial_length: int = setting(8, "MASKs that a gap starts with", ge=1, le=LONGEST)
    max_new_tokens: int = setting(
        64, "most MASKs, of all gaps together; at most what the context leaves", ge=1, le=LONGEST
    )
    evidence: Literal["confidence", "suffix"] = setting(
        "suffix",
        "what speaks for a length: confidence in the gap (as published), or how well the text "
        "behind it follows",
    )
    calibrated: bool = setting(True, "divide the confidence by what it usually is at that length")
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
class Cal(Windowed, Infills, Policy):
    """Tries lengths for each gap before it writes, and keeps the one with most evidence.

    `signal` is the best score that a step found; None once the search is over.
    """

    name = "cal"
    Params = CalParams
    edits = (Insert, Delete)
    params: CalParams

    def __init__(self, params: CalParams, special: SpecialTokens) -> None:
        super().__init__(params, special)
        self.gap = 0  # the one that is measured
        self.search: Climb | None = None  # of its length
        self.searching = True
        self.tried: list[int] = []  # the lengths of the probes, in their order

    def must_see_all(self, step: int) -> bool:  # noqa: ARG002
        return self.searching

    def probes(self, canvas: Canvas) -> list[Probe]:
        while self.searching and self.gap in canvas.sized:
            self._go_on(canvas)
        if not self.searching:
            return []
        open_ = self._open(canvas)
        if self.search is None:
            others = canvas.own_length - len(open_)
            shortest = max(1, self.params.min_new_tokens - others)
            longest = self.params.max_new_tokens - others
            limits = self.params.stride, self.params.patience, shortest, longest
            self.search = Climb(len(open_), *limits)
        self.tried = self.search.ahead()[:AT_ONCE]
        probes = [self._probe(canvas, open_, length) for length in self.tried]
        return [probe for probe in probes if len(probe.read)]

    def step(self, canvas: Canvas, prediction: Prediction, commit: Positions) -> Step:  # noqa: ARG002
        if not self.searching:
            return Step()
        open_ = self._open(canvas)
        assert self.search is not None
        search = self.search
        if not prediction.probes:
            # No text speaks for a length. At the very end there is EOS: it gets all the room.
            at_end = int(open_[-1]) == canvas.length - 1 and not len(canvas.suffix)
            self._go_on(canvas)
            wanted = search.longest if at_end else len(open_)
            return Step(_resized(open_, wanted), commit=no_positions())
        scores = dict(zip(self.tried, map(self._score, prediction.probes), strict=True))
        goes_on: int | None = search.length
        while goes_on in scores:
            goes_on = search.next(scores[goes_on])
        if goes_on is not None:
            return Step(signal=search.best_score, commit=no_positions())
        self._go_on(canvas)
        edits = _resized(open_, search.best)
        return Step(edits, signal=search.best_score, commit=no_positions())

    def _open(self, canvas: Canvas) -> Positions:
        """The MASKs of the gap that is measured."""
        if canvas.gaps is None:
            return canvas.masked
        return canvas.masked[canvas.gaps[canvas.masked] == self.gap]

    def _probe(self, canvas: Canvas, open_: Positions, length: int) -> Probe:
        """The canvas with a gap of this length; by suffix, with the text behind the gap hidden."""
        tried = canvas.edit(_resized(open_, length), self.params.max_new_tokens).canvas
        gap = self._open(tried)
        if self.params.evidence == "confidence":
            return Probe(tried, gap)
        tokens = np.concatenate((tried.cells, tried.suffix))
        given = np.concatenate((tried.given, np.ones(len(tried.suffix), dtype=bool)))
        start = int(gap[-1]) + 1
        run = given[start : start + self.params.behind]
        behind = start + np.flatnonzero(np.logical_and.accumulate(run))
        return Probe(tried.hidden(behind), behind, tokens[behind])

    def _score(self, prediction: Prediction) -> float:
        if self.params.evidence == "confidence":
            mean = float(np.mean(prediction.confidence))
            return mean / length_bias(len(prediction.positions)) if self.params.calibrated else mean
        assert prediction.expected is not None
        return float(np.mean(np.log(np.maximum(prediction.expected, 1e-9))))

    def _go_on(self, canvas: Canvas) -> None:
        """The next gap is measured, if there is one."""
        self.search = None
        self.gap += 1
        self.searching = canvas.gaps is not None and self.gap <= int(canvas.gaps.max())


class Climb:
    """The published search: up while it gets better, then down; a direction ends by patience."""

    def __init__(self, start: int, stride: int, patience: int, shortest: int, longest: int) -> None:
        self.start, self.stride, self.patience = start, stride, patience
        self.shortest, self.longest = shortest, longest
        self.length = self.best = start
        self.best_score = -math.inf
        self.direction = 1
        self.worse = 0

    def ahead(self) -> list[int]:
        """Lengths that will be tried whatever the scores are: those before patience ends."""
        up = self.patience - self.worse if self.direction > 0 else 0
        down = self.patience - (self.worse if self.direction < 0 else 0)
        below = self.length if self.direction < 0 else self.start - self.stride
        lengths = [self.length + self.stride * step for step in range(up)]
        lengths += [below - self.stride * step for step in range(down)]
        return [length for length in lengths if self.shortest <= length <= self.longest]

    def next(self, score: float) -> int | None:
        """Take the score of the length that was tried last; returns the next one to try, if any."""
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
