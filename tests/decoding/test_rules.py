"""Numbers one can check by hand. That the rules follow them is in test_against_reference.py."""

import numpy as np
import pytest

from rho_eos.decoding.expansion import expansion_factor
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.prediction import Prediction
from tests.drawn import combinations
from tests.requests import SPECIAL
from tests.scripted import Guesses, encode, engine_of, run_all


@pytest.mark.parametrize(
    ("low", "high", "rho", "constant", "linear", "exponential"),
    [
        (0.4, 0.8, 0.39, 8, 8, 8),
        (0.4, 0.8, 0.3, 8, 8, 8),  # exactly one interval away is one, not two
        (0.4, 0.8, 0.29, 8, 16, 16),
        (0.4, 0.8, 0.1, 8, 24, 32),  # three, though in binary it is a little more
        (0.4, 0.8, 0.9, 8, 8, 8),
        (0.4, 0.8, 1.0, 8, 16, 16),
        (0.6, 0.8, 0.0, 8, 48, 64),  # the multiplier is capped at 8
    ],
)
def test_expansion(
    low: float, high: float, rho: float, constant: int, linear: int, exponential: int
) -> None:
    expected = {"constant": constant, "linear": linear, "exponential": exponential}
    for name, number in expected.items():
        params = DecodeParams(rho_low=low, rho_high=high, expansion=name)
        assert expansion_factor(rho, params) == number, name


@pytest.mark.parametrize(
    "policy", sorted({policy for policy, _ in combinations(SPECIAL)} - {"released"})
)
def test_a_rules_own_default_holds_with_every_policy(policy: str) -> None:
    assert DecodeParams(policy=policy, commit="entropy-bound").order == "entropy"
    assert DecodeParams(policy=policy, commit="factor").order == "confidence"
    own = DecodeParams(policy=policy, commit="entropy-bound").block_length
    assert own == (None if policy == "blocks" else 32)


def test_a_prediction_speaks_of_just_what_is_asked_in_that_order() -> None:
    sure = np.array([0.1, 0.2, 0.3, 0.4])
    seen = Prediction(np.array([2, 3, 5, 8]), np.array([10, 11, 12, 13]), sure, sure)
    assert seen.at(np.array([8, 2, 5, 3])).token.tolist() == [13, 10, 12, 11]
    assert seen.at(np.array([5])).confidence.tolist() == [0.3]
    assert seen.at(np.array([], dtype=int)).token.tolist() == []
    for stranger in ([4], [2, 9], [0]):
        with pytest.raises(LookupError):
            seen.at(np.array(stranger))


def test_a_block_that_gets_new_masks_may_be_edited_as_long_again() -> None:
    """A canvas of 14 is appended to while its block of 15 is edited without end."""

    def wavers(prompt: list[int], canvas: list[int], step: int) -> Guesses:
        token = np.full(len(canvas), encode("ab")[step % 2])
        return Guesses(token, np.full(len(canvas), 0.95), np.zeros(len(canvas)))

    engine = engine_of(wavers)
    own = {"commit": "editing", "max_post_steps": 1024, "block_length": 15}
    params = DecodeParams(policy="blocks", initial_length=14, max_new_tokens=20, **own)
    engine.add("only", encode("?"), params)
    output = run_all(engine)["only"]
    assert output.error is None
    assert len(output.token_ids) == 20
