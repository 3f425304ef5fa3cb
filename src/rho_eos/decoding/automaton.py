"""Which strings of tokens are accepted: a finite automaton whose steps are whole tokens.

Tokens that lead everywhere to the same places form one class, so a step has a few hundred edges,
however long the vocabulary is. Behind an accepted text stands an end, and ends to the end of the
canvas.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

NOWHERE = -1


def grouped(keys: np.ndarray) -> np.ndarray:
    """Where each run of equal keys begins, for keys in order."""
    return np.flatnonzero(np.diff(keys, prepend=NOWHERE - 1))


@dataclass(frozen=True, eq=False)
class Automaton:
    """States are counted from the start, 0; the last one is the end of the text.

    The last class is that of the tokens that end a text.
    """

    next: np.ndarray  # (states, classes) int64, the state that follows, or NOWHERE
    accepting: np.ndarray  # (states,) bool
    classes: np.ndarray  # (vocabulary,) int64, the class of each token, or NOWHERE
    _exact: list[np.ndarray] = field(default_factory=list, repr=False)

    @classmethod
    def of(
        cls, text: tuple[np.ndarray, np.ndarray, np.ndarray], ends: tuple[int, ...]
    ) -> "Automaton":
        """From steps of text alone; what ends a text is no text, whatever it spells.

        Args:
            text: The three arrays without an end of text.
            ends: The tokens that end a text.
        """
        table_of_text, accepting, classes = text
        states, count = table_of_text.shape
        table = np.full((states + 1, count + 1), NOWHERE, dtype=np.int64)
        table[:states, :count] = table_of_text
        over = np.append(accepting, True)
        table[over, count] = states
        classes = classes.astype(np.int64)
        classes[list(ends)] = count
        used = np.isin(np.arange(count + 1), classes)
        table[:, ~used] = NOWHERE
        return cls(table, over, classes)

    @property
    def end(self) -> int:
        """The class of the tokens that end a text."""
        return self.next.shape[1] - 1

    @cached_property
    def class_sizes(self) -> np.ndarray:
        """(classes,) the logarithm of how many tokens each class has."""
        known = self.classes[self.classes >= 0]
        with np.errstate(divide="ignore"):
            return np.log(np.bincount(known, minlength=self.next.shape[1]))

    @cached_property
    def set_sizes(self) -> np.ndarray:
        """(sets,) the same of each set of classes."""
        return np.logaddexp.reduceat(self.class_sizes[self.members], self.first_members)

    # ── pairs of states, and the classes that lead from one to the other ─────────────────────

    @cached_property
    def _edges(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Source, target and class of every edge, in the order of the pairs."""
        source, by = np.nonzero(self.next != NOWHERE)
        target = self.next[source, by]
        order = np.lexsort((by, target, source))
        return source[order], target[order], by[order]

    @cached_property
    def _first_edges(self) -> np.ndarray:
        """Where the edges of each pair begin."""
        source, target, _ = self._edges
        return grouped(source * len(self.next) + target)

    @cached_property
    def source(self) -> np.ndarray:
        """(pairs,) the state that a pair leads from, in order."""
        return self._edges[0][self._first_edges]

    @cached_property
    def target(self) -> np.ndarray:
        """(pairs,) the state that it leads to."""
        return self._edges[1][self._first_edges]

    @cached_property
    def _sets(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """Which set of classes each pair has, and the sets: many pairs have the same."""
        found: dict[bytes, int] = {}
        sets: list[np.ndarray] = []
        which = []
        for classes in np.split(self._edges[2], self._first_edges[1:]):
            number = found.setdefault(classes.tobytes(), len(sets))
            if number == len(sets):
                sets.append(classes)
            which.append(number)
        return np.array(which, dtype=np.int64), sets

    @property
    def set_of(self) -> np.ndarray:
        """(pairs,) the set of classes that lead from its source to its target."""
        return self._sets[0]

    @cached_property
    def members(self) -> np.ndarray:
        """The classes of all sets, one set after the other."""
        return np.concatenate(self._sets[1])

    @cached_property
    def first_members(self) -> np.ndarray:
        """Where each set begins among them."""
        return np.cumsum([0, *map(len, self._sets[1])])[:-1]

    @cached_property
    def contains(self) -> np.ndarray:
        """(classes, sets) bool"""
        table = np.zeros((self.next.shape[1], len(self.first_members)), dtype=bool)
        for number, classes in enumerate(self._sets[1]):
            table[classes, number] = True
        return table

    @cached_property
    def by_target(self) -> np.ndarray:
        """The pairs in the order of the states that they lead to."""
        return np.argsort(self.target, kind="stable")

    @cached_property
    def leaving(self) -> tuple[np.ndarray, np.ndarray]:
        """The states that anything leads from, and where their pairs begin."""
        first = grouped(self.source)
        return self.source[first], first

    @cached_property
    def entering(self) -> tuple[np.ndarray, np.ndarray]:
        """The states that anything leads to, and where their pairs begin, by target."""
        targets = self.target[self.by_target]
        first = grouped(targets)
        return targets[first], first

    @cached_property
    def both_ways(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """For one pass along a chain from both ends at once, backwards and forwards side by side:
        where each pair reads and each sum is written, among states twice over; where the sums
        begin, and the sum that each pair belongs to."""
        states, pairs = len(self.next), len(self.source)
        (left, first), (entered, later) = self.leaving, self.entering
        read = np.concatenate((self.target, states + self.source[self.by_target]))
        begins = np.concatenate((first, pairs + later))
        sums = np.repeat(np.arange(len(begins)), np.diff(begins, append=2 * pairs))
        return read, np.concatenate((left, states + entered)), begins, sums

    # ── what can still be accepted ───────────────────────────────────────────────────────────

    def walk(self, state: int, tokens: np.ndarray) -> int:
        """The state behind these tokens, or NOWHERE."""
        for each in self.classes[tokens].tolist():
            if each == NOWHERE or state == NOWHERE:
                return NOWHERE
            state = int(self.next[state, each])
        return state

    def before(self, good: np.ndarray, text_only: bool = False) -> np.ndarray:
        """(states,) bool: from where one token leads to a good state."""
        result = np.zeros(len(self.next), dtype=bool)
        states, first = self.leaving
        leads = good[self.target]
        if text_only:
            leads = leads & (self.target != len(self.next) - 1)
        result[states] = np.logical_or.reduceat(leads, first)
        return result

    def exact(self, length: int) -> np.ndarray:
        """(states,) bool: from where a text of exactly so many tokens is accepted."""
        if not self._exact:
            over = self.accepting.copy()
            over[-1] = False
            self._exact.append(over)
        while len(self._exact) <= length:
            self._exact.append(self.before(self._exact[-1], text_only=True))
        return self._exact[length]

    @cached_property
    def shortest(self) -> np.ndarray:
        """(states,) how many tokens complete the text at least; the largest number: none do."""
        far = np.iinfo(np.int64).max
        result = np.where(self.accepting, 0, far)
        reached, steps = self.accepting, 0
        while True:
            steps += 1
            more = self.before(reached) & (result == far)
            if not more.any():
                return result
            result[more] = steps
            reached = reached | more

    def shortest_text(self, least: int, most: int) -> int | None:
        """The fewest tokens, `least` or more and at most `most`, of a text that is accepted."""
        for length in range(least, most + 1):
            found = self.exact(length)
            if found[0] or not found.any():
                return length if found[0] else None
        return None
