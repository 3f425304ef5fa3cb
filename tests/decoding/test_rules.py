"""The parts of the rules, with numbers one can check by hand."""

import numpy as np
import pytest

from rho_eos.decoding.canvas import Canvas
from rho_eos.decoding.commit import above_threshold, first_open_block, ranked
from rho_eos.decoding.expansion import expansion_factor
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.prediction import Prediction
from rho_eos.decoding.signal import confidence, density
from tests.requests import SPECIAL
from tests.scripted import EOS, MASK, run_one, says

WORD = 9


def prediction(positions: list[int], tokens: list[int], sure: list[float]) -> Prediction:
    eos = [p if token == EOS else 0.0 for token, p in zip(tokens, sure, strict=True)]
    return Prediction(np.array(positions), np.array(tokens), np.array(sure), np.array(eos))


def canvas_of(cells: list[int]) -> Canvas:
    return Canvas.of(SPECIAL, [], cells)


@pytest.mark.parametrize(
    ("low", "high", "rho", "constant", "linear", "exponential"),
    [
        # Asym: up to four intervals below the region, two above it.
        (0.4, 0.8, 0.39, 8, 8, 8),
        (0.4, 0.8, 0.3, 8, 8, 8),  # exactly one interval away is one, not two
        (0.4, 0.8, 0.29, 8, 16, 16),
        (0.4, 0.8, 0.2, 8, 16, 16),
        (0.4, 0.8, 0.1, 8, 24, 32),
        (0.4, 0.8, 0.0, 8, 32, 64),
        (0.4, 0.8, 0.81, 8, 8, 8),
        (0.4, 0.8, 0.9, 8, 8, 8),
        (0.4, 0.8, 0.95, 8, 16, 16),
        (0.4, 0.8, 1.0, 8, 16, 16),
        # Sym.
        (0.2, 0.8, 0.1, 8, 8, 8),
        (0.2, 0.8, 0.0, 8, 16, 16),
        (0.3, 0.7, 0.0, 8, 24, 32),
        (0.3, 0.7, 1.0, 8, 24, 32),
        (0.4, 0.6, 1.0, 8, 32, 64),
        # The multiplier is capped at 8.
        (0.6, 0.8, 0.0, 8, 48, 64),
        (0.9, 1.0, 0.0, 8, 64, 64),
    ],
)
def test_expansion(
    low: float, high: float, rho: float, constant: int, linear: int, exponential: int
) -> None:
    for name, expected in (
        ("constant", constant),
        ("linear", linear),
        ("exponential", exponential),
    ):
        params = DecodeParams(rho_low=low, rho_high=high, expansion=name)
        assert expansion_factor(rho, params) == expected, name


def test_expansion_follows_base_interval_and_cap() -> None:
    params = DecodeParams(
        rho_low=0.5, rho_high=0.5, expansion_base=3, expansion_interval=0.25, expansion_cap=5
    )
    assert [expansion_factor(rho, params) for rho in (0.3, 0.25, 0.2, 0.0)] == [3, 3, 6, 6]
    fine = DecodeParams(
        rho_low=1, rho_high=1, expansion_base=3, expansion_interval=0.01, expansion_cap=5
    )
    assert expansion_factor(0.0, fine) == 15


def test_density_counts_masks_only() -> None:
    canvas = canvas_of([WORD, MASK, EOS, MASK, MASK, EOS])
    seen = prediction([1, 3, 4], [WORD, EOS, EOS], [0.2] * 3)
    assert density(canvas, seen) == 2 / 3
    whole = prediction(list(range(6)), [EOS, WORD, EOS, EOS, EOS, EOS], [0.2] * 6)
    assert density(canvas, whole) == 2 / 3


def test_density_without_masks_is_undefined() -> None:
    canvas = canvas_of([WORD, EOS])
    assert density(canvas, prediction([], [], [])) is None


def test_confidence_is_over_32_positions_however_many_say_eos() -> None:
    def number(tokens: list[int], sure: list[float]) -> float | None:
        canvas = canvas_of([MASK] * len(tokens))
        return confidence(canvas, prediction(list(range(len(tokens))), tokens, sure))

    assert number([EOS] * 16, [0.5] * 16) == pytest.approx(0.25)
    assert number([EOS] * 32, [0.5] * 32) == pytest.approx(0.5)
    # Only the last 32 of those that say EOS count, others in between are passed over.
    assert number([EOS] * 40, [1.0] * 8 + [0.5] * 32) == pytest.approx(0.5)
    assert number([EOS, WORD] * 16, [0.5, 0.9] * 16) == pytest.approx(0.25)
    assert number([WORD] * 40, [0.9] * 40) == 0


def test_confidence_includes_committed_positions() -> None:
    canvas = canvas_of([MASK, EOS, EOS])
    seen = prediction([0, 1, 2], [EOS, EOS, WORD], [0.8, 0.4, 0.9])
    assert confidence(canvas, seen) == pytest.approx(1.2 / 32)


@pytest.mark.parametrize(
    ("masked", "block", "expected"),
    [
        ([0, 1, 2, 3, 4], 2, [0, 1]),
        ([1, 2, 3, 4], 2, [1]),
        ([5, 6, 9], 4, [5, 6]),
        ([5, 6, 9], None, [5, 6, 9]),
        ([], 4, []),
    ],
)
def test_candidates_are_the_masks_of_the_first_open_block(
    masked: list[int], block: int | None, expected: list[int]
) -> None:
    assert first_open_block(np.array(masked, dtype=np.int64), block).tolist() == expected


def test_the_threshold_must_be_exceeded() -> None:
    seen = prediction([2, 3, 5, 8], [WORD] * 4, [0.9, 0.91, 0.3, 1.0])
    assert above_threshold(seen, 0.9).tolist() == [3, 8]
    assert above_threshold(seen, 1.0).tolist() == [8]


def test_among_equals_the_leftmost_is_committed() -> None:
    seen = prediction([2, 3, 5, 8], [WORD] * 4, [0.1, 0.4, 0.4, 0.4])
    assert above_threshold(seen, 0.9).tolist() == [3]
    assert ranked(seen, "confidence").tolist() == [3, 5, 8, 2]


@pytest.mark.parametrize(("tie", "first"), [(0.0, 8), (0.05, 5), (0.25, 3), (1.0, 2)])
def test_those_about_as_sure_as_the_surest_tie_with_it(tie: float, first: int) -> None:
    seen = prediction([2, 3, 5, 8], [WORD] * 4, [0.1, 0.5, 0.625, 0.65625])
    assert above_threshold(seen, 0.9, tie).tolist() == [first]
    assert above_threshold(seen, 0.6, tie).tolist() == [5, 8]  # no tie where some are sure


@pytest.mark.parametrize(
    ("length", "steps", "block", "expected"),
    [
        (64, 64, 32, [1] * 64),
        (64, 32, 32, [2] * 32),
        (10, 3, None, [4, 3, 3]),
        (20, 8, 16, [4, 4, 4, 4, 1, 1, 1, 1]),
        (20, 20, 16, [2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1]),
        (8, 1, 4, [4, 4]),  # a block needs at least one step
        (6, 3, 3, [2, 1, 3]),  # the odd step goes to the first block
    ],
)
def test_quota_spreads_commits_evenly(
    length: int, steps: int, block: int | None, expected: list[int]
) -> None:
    params = DecodeParams(
        policy="fixed",
        commit="quota",
        initial_length=length,
        steps=steps,
        block_length=block,
        trace=True,
        early_stop=False,
    )
    trace = run_one(says("a" * length), params).trace
    assert [len(record.committed) for record in trace] == expected


@pytest.mark.parametrize("policy", ["rho-eos", "daedal", "scout", "blocks", "fixed"])
def test_a_rules_own_default_holds_with_every_policy(policy: str) -> None:
    assert DecodeParams(policy=policy, commit="entropy-bound").order == "entropy"
    assert DecodeParams(policy=policy, commit="factor").order == "confidence"
    own = DecodeParams(policy=policy, commit="entropy-bound").block_length
    assert own == (None if policy == "blocks" else 32)


def test_a_prediction_speaks_of_just_what_is_asked_in_that_order() -> None:
    seen = prediction([2, 3, 5, 8], [10, 11, 12, 13], [0.1, 0.2, 0.3, 0.4])
    assert seen.at(np.array([8, 2, 5, 3])).token.tolist() == [13, 10, 12, 11]
    assert seen.at(np.array([5])).confidence.tolist() == [0.3]
    assert seen.at(np.array([], dtype=int)).token.tolist() == []
    for stranger in ([4], [2, 9], [0]):
        with pytest.raises(LookupError):
            seen.at(np.array(stranger))
