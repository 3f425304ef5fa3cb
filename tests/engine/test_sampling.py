"""What is drawn: greedy, or from the tempered softmax by a seed; on models with known logits."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rho_eos.base.outputs import Output
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.sampling import keep_likeliest
from tests.reference.cases import SameEverywhere, engine_decode, some_prompts
from tests.reference.random_llada import END_OF_TURN, EOS, MASK, random_llada


def draw(logits: list[float], count: int, **params: Any) -> Output:
    """`count` positions of one canvas, all committed after a single forward."""
    how = DecodeParams(
        policy="fixed",
        initial_length=count,
        max_new_tokens=count,
        steps=1,
        block_length=None,
        early_stop=False,
        trace=True,
        **params,
    )
    return engine_decode(SameEverywhere(logits), [[5]], [how])[0]


def test_temperature_zero_is_greedy_whatever_the_seed() -> None:
    logits = [0.0, 1.0, 2.0, 9.0, 3.0, 3.5]  # MASK (3) is the most likely and never a candidate
    for seed in (0, 1):
        assert draw(logits, 20, seed=seed).canvas_token_ids == [5] * 20


@pytest.mark.parametrize("vocabulary", [60, 4096, 5003])  # blocks of 128, or none
@pytest.mark.parametrize("temperature", [0.3, 1.0, 5.0])
def test_draws_follow_the_tempered_softmax(vocabulary: int, temperature: float) -> None:
    """Grouped into 50 classes of about equal weight, so that a chi-square test has its say."""
    logits = np.random.default_rng(vocabulary).normal(size=vocabulary) * 2
    weights = np.exp((logits - logits.max()) / temperature)
    weights[MASK] = 0
    cumulative = np.cumsum(weights) / weights.sum()
    group = np.minimum((cumulative * 50).astype(int), 49)
    count = 20_000
    drawn = draw(logits.tolist(), count, temperature=temperature, seed=1).canvas_token_ids
    observed = np.bincount(group[drawn], minlength=50)
    expected = count * np.bincount(group, weights=weights, minlength=50) / weights.sum()
    filled = expected > 5
    chi_square = ((observed - expected)[filled] ** 2 / expected[filled]).sum()
    assert chi_square < 90  # 49 degrees of freedom: 85.4 in one of a thousand fair draws
    assert observed[~filled].sum() < 3 * expected[~filled].sum() + 20


def test_neighbouring_positions_steps_and_seeds_are_independent() -> None:
    """With two equal tokens, pairs of draws are spread evenly over the four combinations."""
    logits = [-99.0, -99.0, -99.0, -99.0, 0.0, 0.0]
    drawn = {
        seed: np.array(draw(logits, 8000, temperature=1.0, seed=seed).canvas_token_ids) - 4
        for seed in (1, 2)
    }
    neighbours = drawn[1][:-1] * 2 + drawn[1][1:]
    seeds = drawn[1] * 2 + drawn[2]
    for pairs in (neighbours, seeds):
        counts = np.bincount(pairs, minlength=4)
        expected = len(pairs) / 4
        assert ((counts - expected) ** 2 / expected).sum() < 16.3  # 3 degrees of freedom


def test_top_k_comes_first_and_top_p_draws_among_those_that_hold_the_share() -> None:
    logits = np.log([0.4, 0.2, 0.12, 0.2, 0.056, 0.024]).tolist()

    def seen(top_p: float, **more: int) -> set[int]:
        how = {"temperature": 1.0, "top_p": top_p, "seed": 4, **more}
        return set(draw(logits, 3000, **how).canvas_token_ids)

    assert seen(0.4) == {0}
    assert seen(0.6) == {0, 1}  # the one that crosses the line still belongs to them
    assert seen(0.8) == {0, 1, 2}
    assert seen(0.95) == {0, 1, 2, 4}
    assert seen(1.0) == {0, 1, 2, 4, 5}
    assert seen(1.0, top_k=2) == {0, 1}  # MASK (3) does not count among them
    assert seen(0.6, top_k=2) == {0}  # of 0.5 and 0.25, which are now 2/3 and 1/3


def test_a_limit_concerns_its_own_request_only() -> None:
    logits = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    common = {"policy": "fixed", "initial_length": 400, "steps": 1, "temperature": 1.0}
    free, limited = engine_decode(
        SameEverywhere(logits),
        [[5], [5]],
        [
            DecodeParams(block_length=None, early_stop=False, **common),
            DecodeParams(block_length=None, early_stop=False, top_k=1, **common),
        ],
    )
    assert len(set(limited.canvas_token_ids)) == 1
    assert set(free.canvas_token_ids) == {0, 1, 2, 4, 5}


@pytest.mark.parametrize("temperature", [1e-300, 1e-6, 100.0])
def test_the_coldest_and_the_hottest_draws_are_sound(temperature: float) -> None:
    logits = [50.0, -50.0, 0.0, 90.0, 60.0, 1.0]
    drawn = set(draw(logits, 500, temperature=temperature, seed=1).canvas_token_ids)
    assert MASK not in drawn
    assert drawn == {4} if temperature < 1 else len(drawn) >= 4


def test_confidence_is_the_probability_without_noise() -> None:
    logits = [0.5, -1.0, 0.0, 4.0, 1.0, -0.5]
    probabilities = np.exp(logits) / np.exp(logits).sum()  # MASK's share stays in the sum
    output = draw(logits, 50, temperature=1.0, seed=1)
    seen = [(token, p) for record in output.trace for _, token, p in record.committed]
    assert len({token for token, _ in seen}) > 2
    for token, confidence in seen:
        assert confidence == pytest.approx(probabilities[token], rel=1e-5)


def test_a_seed_gives_the_same_text_and_another_seed_another() -> None:
    model = random_llada(seed=1, eos_share=0.1)
    prompts = some_prompts(4)
    params = DecodeParams(initial_length=12, max_new_tokens=24, temperature=1.0, early_stop=False)

    def canvases(seed: int, rows: int) -> list[list[int]]:
        seeded = [params.replaced(seed=seed)] * len(prompts)
        return [o.canvas_token_ids for o in engine_decode(model, prompts, seeded, rows)]

    assert canvases(7, rows=1) == canvases(7, rows=4)
    assert all(a != b for a, b in zip(canvases(7, 4), canvases(8, 4), strict=True))


def test_nothing_ends_before_the_minimum_length() -> None:
    logits = [0.0] * 8
    logits[EOS], logits[END_OF_TURN], logits[6] = 5.0, 4.0, 1.0
    prefers_eos = SameEverywhere(logits)
    for params in (
        DecodeParams(policy="fixed", initial_length=12, min_new_tokens=5),
        DecodeParams(initial_length=2, max_new_tokens=40, min_new_tokens=5),
        DecodeParams(initial_length=12, max_new_tokens=40, min_new_tokens=5),
        DecodeParams(policy="daedal", initial_length=2, max_new_tokens=40, min_new_tokens=5),
    ):
        output = engine_decode(prefers_eos, [[7]], [params])[0]
        assert output.token_ids == [6] * 5, params.policy
        assert output.usage.n_token >= 5


def naive_likeliest(weights: list[float], top_k: int, top_p: float) -> set[int]:
    """Sort all, take the first k, of these the first that hold the share."""
    order = sorted(range(len(weights)), key=lambda token: (-weights[token], token))
    order = order[: top_k or len(order)]
    whole, held, kept = sum(weights[token] for token in order), 0.0, set[int]()
    for token in order:
        kept.add(token)
        held += weights[token]
        if top_p < 1 and held >= top_p * whole:
            break
    return kept


@given(
    # Eighths add up exactly, so that equal weights and shares met exactly are all tried.
    rows=st.lists(st.lists(st.integers(1, 8), min_size=12, max_size=12), min_size=1, max_size=4),
    limits=st.lists(
        st.tuples(st.integers(0, 14), st.sampled_from([0.125, 0.5, 0.75, 1.0])),
        min_size=4,
        max_size=4,
    ),
    looked_at=st.integers(1, 12),
)
def test_the_likeliest_are_those_of_a_full_sort(
    rows: list[list[int]], limits: list[tuple[int, float]], looked_at: int
) -> None:
    weights = torch.tensor(rows, dtype=torch.float32) / 8
    top_k, top_p = (np.array(column) for column in zip(*limits[: len(rows)], strict=True))
    kept = keep_likeliest(weights, top_k, top_p.astype(np.float32), looked_at)
    for own, before, (k, p) in zip(kept, weights, limits, strict=False):
        wants = naive_likeliest(before.tolist(), k, p)
        assert set(own.nonzero()[:, 0].tolist()) == wants
        assert all(own[token] == before[token] for token in wants)
