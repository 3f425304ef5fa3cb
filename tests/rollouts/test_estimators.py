"""Estimators against brute force: every mask that there is, one row at a time, without padding."""

from dataclasses import replace
from itertools import combinations, product
from math import comb, log
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rho_eos import LLM, Rollouts, UserError
from rho_eos.rollouts import estimators
from rho_eos.rollouts.batches import Batch
from rho_problems import held_out

PROMPTS = [held_out(task, 2)[-1].prompt for task in ("tiny-gsm", "tiny-math")]
SHORT = {"policy": "fixed", "initial_length": 5, "max_new_tokens": 5, "temperature": 2.0, "seed": 3}
GROWING = {
    "policy": "rho-eos",
    "initial_length": 16,
    "max_new_tokens": 32,
    "threshold": 0.3,
    "temperature": 1.0,
}
ESTIMATORS = {
    "one step": lambda model, batch: estimators.one_step(model, batch, prompt_masked=0.2),
    "coupled": lambda model, batch: estimators.coupled(model, batch, pairs=2),
    "bound": lambda model, batch: estimators.bound(model, batch, draws=3),
    "trajectory": estimators.trajectory,
    "in order": estimators.in_order,
}


@pytest.fixture(scope="module")
def llm(tiny: LLM) -> LLM:
    return tiny


@pytest.fixture(scope="module")
def short(llm: LLM) -> Rollouts:
    """Samples of at most five tokens: all their masks can be tried."""
    return llm.rollout(PROMPTS, SHORT, n=1)


@pytest.fixture(scope="module")
def growing(llm: LLM) -> Rollouts:
    return llm.rollout(PROMPTS, GROWING, n=2, trajectory=True)


def whole(rollouts: Rollouts) -> Batch:
    [batch] = rollouts.batches(len(rollouts))
    return batch


def log_p(llm: LLM, rollouts: Rollouts, s: int, masked: Any) -> np.ndarray:
    """log P of every token of a sample with these cells, and all behind the first end, masked."""
    prompt = rollouts.prompt_ids[s, : rollouts.prompt_length[s]]
    tokens = rollouts.tokens[s, : rollouts.length[s]]
    canvas = tokens.copy()
    canvas[[*masked]] = llm.special.mask
    canvas[rollouts.scored[s].sum() :] = llm.special.mask
    row = torch.from_numpy(np.concatenate((prompt, canvas)))[None]
    with torch.inference_mode():
        logits = llm.model(row).logits[0, len(prompt) :]
    found = logits.double().log_softmax(-1).numpy()
    return found[np.arange(len(tokens)), tokens]


def counts(rollouts: Rollouts) -> list[int]:
    found = [int(own.sum()) for own in rollouts.scored]
    assert max(found) == 5  # or there would be nothing to enumerate
    return found


@torch.inference_mode()
def test_one_forward_of_masks(llm: LLM, short: Rollouts) -> None:
    estimate = estimators.one_step(llm.model, whole(short))
    for s, n in enumerate(counts(short)):
        expected = log_p(llm, short, s, range(n))[:n]
        np.testing.assert_allclose(estimate.logprobs[s, :n], expected, atol=1e-4)
        assert not estimate.logprobs[s, n:].any() and not estimate.weight[s, n:].any()
        np.testing.assert_allclose(estimate.total[s], expected.sum(), atol=1e-3)


@torch.inference_mode()
def test_left_to_right_is_the_chain_rule(llm: LLM, short: Rollouts) -> None:
    estimate = estimators.in_order(llm.model, whole(short))
    for s, n in enumerate(counts(short)):
        expected = [log_p(llm, short, s, range(i, n))[i] for i in range(n)]
        np.testing.assert_allclose(estimate.logprobs[s, :n], expected, atol=1e-4)


@torch.inference_mode()
def test_the_bound_and_its_variance_are_those_of_all_masks(llm: LLM, short: Rollouts) -> None:
    draws = 200
    estimate = estimators.bound(llm.model, whole(short), draws=draws)
    assert estimate.variance is not None
    for s, n in enumerate(counts(short)):
        values, chances = [], []
        for size in range(1, n + 1):
            for masked in combinations(range(n), size):
                values.append(n / size * log_p(llm, short, s, masked)[[*masked]].sum())
                chances.append(1 / n / comb(n, size))
        mean = np.average(values, weights=chances)
        variance = np.average((np.array(values) - mean) ** 2, weights=chances) / draws
        assert abs(float(estimate.total[s]) - mean) < 4 * variance**0.5 + 1e-3
        assert 0.6 * variance <= float(estimate.variance[s]) <= 1.6 * variance + 1e-9


@torch.inference_mode()
def test_coupled_masks_average_to_all_masks(llm: LLM, short: Rollouts) -> None:
    """With a share of one half a token is equally often hidden by every mask that hides it."""
    pairs = 100
    estimate = estimators.coupled(llm.model, whole(short), pairs=pairs, between=(0.5, 0.5))
    for s, n in enumerate(counts(short)):
        all_hidden = log_p(llm, short, s, range(n))
        every = [np.flatnonzero(hides) for hides in product((0, 1), repeat=n)]
        each = {tuple(masked): log_p(llm, short, s, masked) for masked in every}
        for token in range(n):
            own = np.array([found[token] for masked, found in each.items() if token in masked])
            expected = 0.5 * all_hidden[token] + own.mean()
            error = own.std() / pairs**0.5
            assert abs(float(estimate.logprobs[s, token]) - expected) < 4.5 * error + 1e-3


def test_a_pair_of_coupled_masks_hides_every_token_once(short: Rollouts) -> None:
    """A model that knows nothing gives each token -log V, twice as much where it was masked."""

    def ignorant(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=torch.zeros(*input_ids.shape, 872))

    for pairs in (1, 3):
        estimate = estimators.coupled(ignorant, whole(short), pairs=pairs, between=(0.5, 0.5))
        for s, n in enumerate(counts(short)):
            np.testing.assert_allclose(estimate.logprobs[s, :n], -1.5 * log(872), rtol=1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("model", ["tiny", "tiny-blocks"])
def test_a_trajectory_has_the_probabilities_of_the_rollout(model: str, llm: LLM) -> None:
    used = llm if model == "tiny" else LLM(model)
    limits = GROWING if model == "tiny" else {"max_new_tokens": 40, "temperature": 1.0}
    rollouts = used.rollout(PROMPTS, limits, n=2, trajectory=True)
    batch = whole(rollouts)
    estimate = estimators.trajectory(used.model, batch)
    assert int(batch.committed.sum()) > 30
    assert torch.equal(estimate.weight > 0, batch.committed)
    torch.testing.assert_close(estimate.logprobs, batch.old_logprobs, atol=2e-3, rtol=1e-3)


@torch.inference_mode()
def test_some_forwards_of_a_trajectory_stand_for_all(llm: LLM, growing: Rollouts) -> None:
    """One forward of K: K times the sum of what it committed, and each of them gets its turn."""
    one = next(batch for batch in growing.batches(1) if len(batch.step.unique()) > 4)
    steps = [int(k) for k in one.step.unique() if k >= 0]
    sums = {k: float(one.old_logprobs[one.step == k].sum()) * len(steps) for k in steps}
    seen = set()
    for seed in range(40):
        total = estimators.trajectory(llm.model, one, forwards=1, seed=seed).total
        chosen = min(sums, key=lambda k: abs(sums[k] - float(total)))
        assert float(total) == pytest.approx(sums[chosen], abs=2e-2)
        seen.add(chosen)
    assert len(seen) > len(steps) / 2
    full = estimators.trajectory(llm.model, one, forwards=len(steps))
    assert float(full.total) == pytest.approx(float(one.old_logprobs.sum()), abs=1e-2)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_gradients_are_those_of_finite_differences(name: str, growing: Rollouts) -> None:
    model = LLM("tiny").model.requires_grad_(True)
    batch = next(iter(growing.batches(1)))
    ESTIMATORS[name](model, batch).total.sum().backward()
    weight = model.model.norm.weight
    direction = torch.sign(weight.grad)
    expected = float((weight.grad * direction).sum())
    sides = []
    with torch.no_grad():
        for step in (2e-3, -4e-3):
            weight.add_(step * direction)
            sides.append(float(ESTIMATORS[name](model, batch).total.double().sum()))
    assert (sides[0] - sides[1]) / 4e-3 == pytest.approx(expected, rel=0.02)


@torch.inference_mode()
@pytest.mark.parametrize("name", ["one step", "bound", "in order", "coupled"])
def test_what_lies_behind_the_first_end_counts_for_nothing(
    name: str, llm: LLM, short: Rollouts
) -> None:
    given = replace(short, text_length=np.array([2, 3]))  # as if an end stood there
    tokens = given.tokens.copy()
    tokens[[0, 1], [2, 3]] = llm.special.eos
    behind = np.arange(5) > given.text_length[:, None]
    pair = [replace(given, tokens=np.where(behind, id, tokens)) for id in (77, llm.special.eos)]
    assert [each.scored.sum() for each in pair] == [7, 7]  # the text and one end
    first, second = (ESTIMATORS[name](llm.model, whole(each)) for each in pair)
    torch.testing.assert_close(first.total, second.total)


@torch.inference_mode()
@pytest.mark.parametrize("name", ["one step", "trajectory", "in order"])
def test_batch_mates_and_padding_change_nothing(name: str, llm: LLM, growing: Rollouts) -> None:
    assert len({*growing.length + growing.prompt_length}) > 1
    alone = [ESTIMATORS[name](llm.model, batch).total for batch in growing.batches(1)]
    if name == "one step":  # its masks of the prompt are drawn anew for each batch
        alone = [estimators.one_step(llm.model, batch).total for batch in growing.batches(1)]
        together = estimators.one_step(llm.model, whole(growing)).total
    else:
        together = ESTIMATORS[name](llm.model, whole(growing)).total
    torch.testing.assert_close(torch.cat(alone), together, atol=2e-3, rtol=1e-4)


def test_what_cannot_be_estimated_is_said(llm: LLM, short: Rollouts) -> None:
    with pytest.raises(UserError, match="trajectory=True"):
        estimators.trajectory(llm.model, whole(short))
    with pytest.raises(UserError, match="draws is 1"):
        estimators.bound(llm.model, whole(short), draws=1)
    with pytest.raises(UserError, match="k is 0"):
        next(iter(short.batches(0)))
