"""The distribution of a canvas's texts, restricted to those that an automaton accepts. Exact.

Positions are independent, as a masked diffusion model predicts them; the automaton ties them
together. So the positions and its states are a chain, on which the most probable accepted text, the
probability of each class of tokens at each position, and a draw are found by going along it once in
either direction (docs/method.md §15). Everything is in logarithms: what the form demands may be
what the model thinks impossible.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rho_eos.decoding.automaton import NOWHERE, Automaton, grouped

NEVER = -np.inf


@dataclass(frozen=True, eq=False)
class Cells:
    """What of a canvas the chain knows.

    Args:
        tokens: (L,) the cells, with `mask` where a token is missing.
        mask: The id of MASK.
        first_end: No end of text may stand before this cell.
        ends: Whether the text may end on this canvas; it may not where text follows.
        room: So many tokens may still come behind the canvas before the text must be complete.
    """

    tokens: np.ndarray
    mask: int
    first_end: int = 0
    ends: bool = True
    room: int = 0


class Chain:
    """An automaton along the cells of a canvas, from the first MASK on."""

    def __init__(self, automaton: Automaton, cells: Cells) -> None:
        self.automaton, self.cells = automaton, cells
        masked = np.flatnonzero(cells.tokens == cells.mask)
        self.first = int(masked[0]) if len(masked) else len(cells.tokens)
        given = cells.tokens[: self.first]
        self.start = automaton.walk(0, given)
        early = np.flatnonzero(automaton.classes[given] == automaton.end)
        if len(early) and not self._may_end(int(early[0])):
            self.start = NOWHERE

    @property
    def fits(self) -> bool:
        """Whether any accepted text has this length and these tokens."""
        return self.start != NOWHERE and bool(self._completed(self.first)[self.start])

    def _completed(self, at: int) -> np.ndarray:
        """(states,) bool: from which the cells from `at` on can be filled with what is accepted."""
        automaton, cells = self.automaton, self.cells
        length = len(cells.tokens)
        known = np.flatnonzero(cells.tokens[at:] != cells.mask)
        behind = at + int(known[-1]) + 1 if len(known) else at  # only MASKs stand from there on
        # Where a text may end anywhere, a shorter one is as good as one that fills the canvas.
        free = max(behind, min(cells.first_end, length))
        if cells.ends and cells.first_end <= length:
            good = automaton.shortest <= length - free + cells.room
        else:
            least = max(cells.first_end - length, 0) if cells.ends else 0
            left = [automaton.exact(length - free + more) for more in range(least, cells.room + 1)]
            good = np.logical_or.reduce([*left, np.zeros(len(automaton.next), dtype=bool)])
        for index in range(free - 1, at - 1, -1):
            token = cells.tokens[index]
            if token == cells.mask:
                good = automaton.before(good, text_only=not self._may_end(index))
            else:
                good = self._through(good, int(token), index)
        return good

    def _may_end(self, index: int) -> bool:
        return self.cells.ends and index >= self.cells.first_end

    def _through(self, good: np.ndarray, token: int, index: int) -> np.ndarray:
        """The states from which this token leads to a good one."""
        by = self.automaton.classes[token]
        if by == NOWHERE or (by == self.automaton.end and not self._may_end(index)):
            return np.zeros(len(good), dtype=bool)
        following = self.automaton.next[:, by]
        return (following != NOWHERE) & good[following]


@dataclass(frozen=True, eq=False)
class Weights:
    """The logarithms of what classes weigh at predicted cells.

    Args:
        at: (n,) the cells, in order.
        scores: (n, classes) the mass of each class.
    """

    at: np.ndarray
    scores: np.ndarray


class Posterior:
    """The chain with weights. A MASK that nobody predicted may be any token."""

    def __init__(self, chain: Chain, weights: Weights) -> None:
        self.chain, self.weights = chain, weights
        automaton, cells = chain.automaton, chain.cells
        self.automaton = automaton
        inside = (weights.at >= chain.first) & (weights.at < len(cells.tokens))
        #: Which of the predicted cells lie on the chain; the others have no say in it.
        self.inside = np.flatnonzero(inside)
        #: Behind the last predicted cell only counts whether the text can be completed.
        self.stop = int(weights.at[inside].max(initial=chain.first - 1)) + 1
        scores = weights.scores[inside].copy()
        early = weights.at[inside] < cells.first_end
        scores[early | (not cells.ends), automaton.end] = NEVER
        self.scores = scores
        self.rows = weights.at[inside] - chain.first

    @cached_property
    def _sets(self) -> tuple[np.ndarray, np.ndarray]:
        """(n, sets) the best class of each set of classes, and what all of them weigh together."""
        automaton = self.automaton
        values = self.scores[:, automaton.members]
        best = np.maximum.reduceat(values, automaton.first_members, axis=1)
        top = np.maximum(self.scores.max(1, keepdims=True), -1e300)
        with np.errstate(divide="ignore"):
            linear = np.exp(self.scores - top)[:, automaton.members]
            total = np.log(np.add.reduceat(linear, automaton.first_members, axis=1)) + top
        return best, np.maximum(total, best)  # far below the best class of all, a sum is lost

    def _pairs(self, sets: np.ndarray, free: np.ndarray) -> np.ndarray:
        """(positions, pairs) what it weighs to go from a state to another, at every position.

        `sets` is that of predicted cells, `free` (sets,) that of MASKs that nobody predicted.
        """
        automaton, chain = self.automaton, self.chain
        tokens = chain.cells.tokens[chain.first : self.stop]
        result = np.tile(free[automaton.set_of], (len(tokens), 1))
        for row in np.flatnonzero(tokens != chain.cells.mask).tolist():
            by = automaton.classes[tokens[row]]
            own = automaton.contains[by] if by != NOWHERE else np.zeros(len(sets.T), dtype=bool)
            result[row] = np.where(own, 0.0, NEVER)[automaton.set_of]
        result[self.rows] = sets[:, automaton.set_of]
        may_end = [chain._may_end(chain.first + row) for row in range(len(tokens))]
        into_end = automaton.target == len(automaton.next) - 1
        result[np.ix_(~np.array(may_end, dtype=bool), into_end)] = NEVER
        return result

    @cached_property
    def _last(self) -> np.ndarray:
        """(states,) 0 where what lies behind the predicted cells can be completed."""
        return np.where(self.chain._completed(self.stop), 0.0, NEVER)

    @cached_property
    def _start(self) -> np.ndarray:
        start = np.full(len(self.automaton.next), NEVER)
        if self.chain.start != NOWHERE:
            start[self.chain.start] = 0.0
        return start

    def best(self) -> np.ndarray:
        """(n,) the class of each predicted cell on the chain in the most probable accepted text.

        Raises:
            LookupError: There is no accepted text.
        """
        automaton = self.automaton
        pairs = self._pairs(self._sets[0], np.zeros(len(automaton.first_members)))
        following = _best_behind(automaton, pairs, self._last)
        state = self.chain.start
        if state == NOWHERE or following[0, state] == NEVER:
            raise LookupError
        chosen = np.zeros(len(pairs), dtype=np.int64)
        states, first = automaton.leaving
        starts = dict(zip(states.tolist(), first.tolist(), strict=True))
        stops = dict(zip(states.tolist(), [*first[1:].tolist(), len(pairs.T)], strict=True))
        for row in range(len(pairs)):
            own = slice(starts[state], stops[state])
            ways = pairs[row, own] + following[row + 1, automaton.target[own]]
            chosen[row] = pair = starts[state] + int(ways.argmax())
            state = int(automaton.target[pair])
        allowed = automaton.contains.T[automaton.set_of[chosen[self.rows]]]
        return np.asarray(np.where(allowed, self.scores, NEVER).argmax(1))

    @cached_property
    def _along(self) -> tuple[np.ndarray, np.ndarray]:
        """(n, sets) the probability that a set of classes is used, and (n,) how sure that is."""
        automaton = self.automaton
        pairs = self._pairs(self._sets[1], automaton.set_sizes)
        after, before = _sums(automaton, pairs, self._last, self._start)
        rows = self.rows
        with np.errstate(invalid="ignore"):
            together = (
                before[rows][:, automaton.source]
                + pairs[rows]
                + after[rows + 1][:, automaton.target]
            )
            whole = after[0, self.chain.start]
            shares = np.exp(together - whole)
        order = np.argsort(automaton.set_of, kind="stable")
        keys = automaton.set_of[order]
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        return np.add.reduceat(shares[:, order], first, axis=1), whole

    def probability(self, classes: np.ndarray) -> np.ndarray:
        """(n,) of a class at each predicted cell on the chain, over all accepted texts."""
        used, _ = self._along
        own = (used > 0) & self.automaton.contains[classes]
        scores = self.scores[np.arange(len(classes)), classes][:, None]
        share = np.where(own, scores, NEVER) - np.where(own, self._sets[1], 0.0)
        return np.minimum((used * np.exp(share)).sum(1), 1.0)

    def probabilities(self) -> np.ndarray:
        """(n, classes) of every class."""
        automaton, (used, _) = self.automaton, self._along
        of_set = np.repeat(
            np.arange(len(used.T)), np.diff(automaton.first_members, append=len(automaton.members))
        )
        with np.errstate(invalid="ignore"):
            share = np.exp(self.scores[:, automaton.members] - self._sets[1][:, of_set])
            mass = np.where(used[:, of_set] > 0, used[:, of_set] * share, 0.0)
        order = np.argsort(automaton.members, kind="stable")
        first = grouped(automaton.members[order])
        result = np.zeros((len(mass), len(automaton.next.T)))
        result[:, automaton.members[order][first]] = np.add.reduceat(mass[:, order], first, axis=1)
        return np.minimum(result, 1.0)

    def draw(self, uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(n,) classes of one text that is drawn, and how probable each was behind those before it;
        `uniform` has a number in [0, 1) for each cell of the canvas.

        The i-th decides on cell i, so what is drawn depends on the numbers alone.

        Raises:
            LookupError: There is no accepted text.
        """
        automaton, first = self.automaton, self.chain.first
        pairs = self._pairs(self._sets[1], automaton.set_sizes)
        after, _ = _sums(automaton, pairs, self._last, self._start)
        state = self.chain.start
        if state == NOWHERE or after[0, state] == NEVER:
            raise LookupError
        chosen, share = np.zeros(len(pairs), dtype=np.int64), np.ones(len(pairs))
        scores = dict(zip(self.rows.tolist(), self.scores, strict=True))
        into_end = len(automaton.next) - 1
        for row in range(len(pairs)):
            following = automaton.next[state]
            ways = np.where(following != NOWHERE, after[row + 1, following], NEVER)
            token = self.chain.cells.tokens[first + row]
            if row in scores:
                ways = ways + scores[row]
            elif token == self.chain.cells.mask:
                ways = ways + automaton.class_sizes
                ways[~self.chain._may_end(first + row) & (following == into_end)] = NEVER
            else:
                ways[np.arange(len(ways)) != automaton.classes[token]] = NEVER
            each = np.exp(ways - ways.max())
            mass = np.cumsum(each)
            by = int(np.searchsorted(mass, uniform[first + row] * mass[-1], side="right"))
            chosen[row] = by = min(by, int(np.flatnonzero(ways > NEVER)[-1]))
            share[row] = each[by] / mass[-1]
            state = int(following[by])
        return chosen[self.rows], share[self.rows]


def _best_behind(automaton: Automaton, pairs: np.ndarray, last: np.ndarray) -> np.ndarray:
    """(positions + 1, states) what the best way on weighs, by position and state."""
    states, first = automaton.leaving
    result = np.full((len(pairs) + 1, len(last)), NEVER)
    result[-1] = last
    for row in range(len(pairs) - 1, -1, -1):
        ways = pairs[row] + result[row + 1][automaton.target]
        result[row, states] = np.maximum.reduceat(ways, first)
    return result


def _sums(
    automaton: Automaton, pairs: np.ndarray, last: np.ndarray, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(positions + 1, states) what all ways behind each position weigh together, and all ways that
    lead to it."""
    count = len(last)
    read, write, begins, sums = automaton.both_ways
    weights = np.concatenate((pairs[::-1], pairs[:, automaton.by_target]), axis=1)
    result = np.full((len(pairs) + 1, 2 * count), NEVER)
    result[0] = np.concatenate((last, start))
    with np.errstate(divide="ignore"):
        for row, values in enumerate(weights):
            values += result[row][read]
            top = np.maximum(np.maximum.reduceat(values, begins), -1e300)
            values -= top[sums]
            total = np.add.reduceat(np.exp(values, out=values), begins)
            result[row + 1, write] = np.log(total, out=total) + top
    return result[::-1, :count], result[:, count:]
