"""DreamOn's own rules: what it deletes, and when the canvas may grow no more."""

import numpy as np
import pytest

from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.canvas import Canvas
from rho_eos.decoding.edits import Delete
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.policies.dreamon import DreamOn
from rho_eos.decoding.prediction import Prediction
from tests.reference.bridge import SPECIAL

MASK, EXPAND = SPECIAL.mask, 12
WITH_EXPAND = SpecialTokens(MASK, SPECIAL.eos, SPECIAL.end_of_turn, EXPAND)


@pytest.mark.parametrize(
    ("prompt", "canvas", "gaps", "deleted"),
    [
        ([9], [MASK, 8, MASK, MASK], None, [2, 3]),
        ([9, SPECIAL.eos], [MASK, 8, MASK, MASK], None, [0, 2, 3]),  # the row's first EOS
        ([9], [MASK, 8, MASK, 7, MASK], [0, 0, 0, -1, 1], [2]),  # another gap is another matter
        ([9], [MASK, SPECIAL.eos, MASK, 8, MASK], [0, -1, 1, 1, 1], [2, 4]),
    ],
)
def test_what_dreamon_deletes_after_an_eos(
    prompt: list[int], canvas: list[int], gaps: list[int] | None, deleted: list[int]
) -> None:
    """EOS is chosen at position 2."""
    policy = DreamOn(DecodeParams(policy="dreamon"), WITH_EXPAND)
    seen = Canvas.of(WITH_EXPAND, prompt, canvas, gaps=gaps)
    masked = seen.masked
    sure = np.where(masked == 2, 0.9, 0.1)
    tokens = np.where(masked == 2, SPECIAL.eos, 11)
    predicted = Prediction(masked, tokens, sure, sure, entropy=1 - sure)
    step = policy.step(seen, predicted, np.array([], dtype=int))
    [edit] = step.edits
    assert isinstance(edit, Delete) and edit.positions.tolist() == deleted
    assert step.commit is not None and not len(step.commit)


@pytest.mark.parametrize(
    ("params", "prompt", "forbidden"),
    [
        ({}, 5, False),
        ({"max_new_tokens": 4, "initial_length": 4}, 5, True),
        ({"context": 12}, 5, True),  # 5 before, 4 on the canvas, 3 behind
        ({"context": 13}, 5, False),
        ({"expansions": 0}, 5, True),
    ],
)
def test_when_dreamon_may_not_expand(params: dict[str, int], prompt: int, forbidden: bool) -> None:
    policy = DreamOn(DecodeParams(policy="dreamon", **params), WITH_EXPAND)
    canvas = Canvas.of(WITH_EXPAND, [0] * prompt, [MASK, 8, MASK, MASK], suffix=[0] * 3)
    assert policy.forbids(canvas) == ((EXPAND,) if forbidden else ())


def test_the_budget_of_expansions_is_what_was_asked_for() -> None:
    asked = DecodeParams(policy="dreamon", max_new_tokens=48)
    assert asked.replaced(max_new_tokens=20).expansions == 48  # the context left less room
    assert DecodeParams(policy="dreamon", max_new_tokens=48, expansions=3).expansions == 3
