"""The chain against all strings: on a vocabulary of six tokens every accepted text is listed."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rho_eos.decoding.automaton import NOWHERE, Automaton
from rho_eos.decoding.chain import Cells, Chain, Posterior, Weights

TEXT, END, OTHER_END, MASK = range(4), 4, 5, 9
VOCABULARY = 10


@dataclass
class Case:
    table: np.ndarray  # (states, 4): where each token leads
    accepting: np.ndarray
    cells: Cells
    logits: np.ndarray  # (predicted, vocabulary)
    predicted: np.ndarray

    @property
    def automaton(self) -> Automaton:
        """Tokens that lead everywhere to the same places share a class."""
        columns, classes = np.unique(self.table, axis=1, return_inverse=True)
        of = np.full(VOCABULARY, NOWHERE)
        of[: len(TEXT)] = classes.ravel()
        return Automaton.of((columns, self.accepting, of), (END, OTHER_END))

    @property
    def posterior(self) -> Posterior:
        automaton = self.automaton
        scores = [
            np.logaddexp.reduce(self.logits[:, automaton.classes == each], axis=1, initial=-np.inf)
            for each in range(automaton.next.shape[1])
        ]
        weights = Weights(self.predicted, np.column_stack(scores))
        return Posterior(Chain(automaton, self.cells), weights)

    def is_accepted(self, string: tuple[int, ...]) -> bool:
        cells = self.cells
        state = 0
        for at, token in enumerate(string):
            if token in (END, OTHER_END):
                rest = string[at:]
                legal = cells.ends and at >= cells.first_end and set(rest) <= {END, OTHER_END}
                return bool(legal and self.accepting[state])
            state = self.table[state, token]
            if state == NOWHERE:
                return False
        room = cells.room
        least = max(cells.first_end - len(string), 0) if cells.ends else 0
        return any(self._completes(state, more) for more in range(least, room + 1))

    def _completes(self, state: int, count: int) -> bool:
        if state == NOWHERE:
            return False
        if not count:
            return bool(self.accepting[state])
        return any(self._completes(each, count - 1) for each in self.table[state])

    def texts(self) -> dict[tuple[int, ...], float]:
        """Every accepted string of the canvas, and the logarithm of what it weighs."""
        tokens = self.cells.tokens
        options = [range(6) if token == MASK else [token] for token in tokens]
        rows = {int(at): row for row, at in enumerate(self.predicted)}
        found = {}
        for string in product(*options):
            if self.is_accepted(string):
                found[string] = sum(self.logits[row, string[at]] for at, row in rows.items())
        return found


@st.composite
def cases(draw: st.DrawFn, all_predicted: bool = False) -> Case:
    states = draw(st.integers(1, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    table = random.integers(-1, states, (states, len(TEXT)))
    accepting = random.random(states) < 0.5
    length = draw(st.integers(1, 5))
    tokens = random.integers(0, 6, length)
    tokens[random.random(length) < draw(st.sampled_from([0.5, 0.8, 1.0]))] = MASK
    masked = np.flatnonzero(tokens == MASK)
    predicted = masked
    if not all_predicted and len(masked):  # a window step predicts those of a block
        predicted = masked[masked < draw(st.integers(1, length))]
    ends = draw(st.booleans())
    room = draw(st.sampled_from([0, 0, 2]))
    cells = Cells(tokens, MASK, draw(st.integers(0, length)), ends, room)
    spread = draw(st.sampled_from([1.0, 5.0, 300.0]))
    logits = spread * random.standard_normal((len(predicted), VOCABULARY))
    return Case(table, accepting, cells, logits, predicted)


@given(cases())
@settings(max_examples=300)
def test_whether_a_canvas_fits(case: Case) -> None:
    assert Chain(case.automaton, case.cells).fits == bool(case.texts())


@given(cases())
@settings(max_examples=300)
def test_the_most_probable_accepted_text(case: Case) -> None:
    """Of cells that nobody predicted only counts that something fits there."""
    texts = case.texts()
    single = case.automaton.classes  # the best token of a class stands for it
    posterior = case.posterior
    best = np.column_stack(
        [
            case.logits[:, single == each].max(1, initial=-np.inf)
            for each in range(posterior.automaton.next.shape[1])
        ]
    )
    posterior = Posterior(posterior.chain, Weights(case.predicted, best))
    if not texts:
        with pytest.raises(LookupError):
            posterior.best()
        return
    chosen = posterior.best()
    assert len(chosen) == len(case.predicted)
    weight = best[np.arange(len(chosen)), chosen].sum()
    assert np.isclose(weight, max(texts.values()))
    classes = {tuple(single[list(each)][case.predicted].tolist()) for each in texts}
    assert tuple(chosen.tolist()) in classes


@given(cases(all_predicted=True))
@settings(max_examples=300)
def test_the_posterior_and_a_draw_from_it(case: Case) -> None:
    if case.cells.room:
        case.cells = Cells(case.cells.tokens, MASK, case.cells.first_end, case.cells.ends)
    texts = case.texts()
    if not texts or not len(case.predicted):
        return
    weights = np.array(list(texts.values()))
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    posterior = case.posterior
    expected = np.zeros((len(case.predicted), posterior.automaton.next.shape[1]))
    for string, weight in zip(texts, weights, strict=True):
        for row, at in enumerate(case.predicted):
            expected[row, posterior.automaton.classes[string[at]]] += weight
    assert np.allclose(posterior.probabilities(), expected, atol=1e-9)
    # A draw is the inverse of the distribution, cell by cell: its law is exact by arithmetic.
    grid = (np.arange(7) + 0.5) / 7
    drawn = {tuple(posterior.draw(np.full(len(case.cells.tokens), u))[0].tolist()) for u in grid}
    by_class: dict[tuple[int, ...], float] = {}
    for string, weight in zip(texts, weights, strict=True):
        key = tuple(posterior.automaton.classes[[string[at] for at in case.predicted]].tolist())
        by_class[key] = by_class.get(key, 0.0) + weight
    assert drawn <= set(by_class)


def test_draws_have_the_law_of_the_posterior() -> None:
    """(ab)*: three texts on four cells, drawn as often as they are probable."""
    table = np.array([[1, -1, -1, -1], [-1, 0, -1, -1]])
    cells = Cells(np.full(4, MASK), MASK)
    logits = np.zeros((4, VOCABULARY))
    logits[0, END] = 1.0
    case = Case(table, np.array([True, False]), cells, logits, np.arange(4))
    texts = case.texts()
    weights = np.exp(list(texts.values()))
    random, posterior = np.random.default_rng(0), case.posterior
    classes = posterior.automaton.classes
    counts: dict[tuple[int, ...], int] = {}
    probable: dict[tuple[int, ...], float] = {}
    for _ in range(4000):
        by, share = posterior.draw(random.random(4))
        drawn = tuple(by.tolist())
        probable[drawn] = float(share.prod())
        counts[drawn] = counts.get(drawn, 0) + 1
    expected: dict[tuple[int, ...], float] = {}
    for string, weight in zip(texts, weights, strict=True):
        key = tuple(classes[list(string)].tolist())
        expected[key] = expected.get(key, 0.0) + weight / weights.sum()
    assert counts.keys() == expected.keys()
    for drawn, share in expected.items():
        assert abs(counts[drawn] / 4000 - share) < 0.03
        assert np.isclose(probable[drawn], share)  # what it says of itself
