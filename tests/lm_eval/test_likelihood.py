"""The Monte-Carlo likelihood against the sum over all masks, from transformers' own forward."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch

from rho_eos import LLM
from rho_eos.lm_eval.likelihood import Pair, greedy_answers, log_likelihoods

PAIRS = [Pair([70, 71, 72], [80, 81, 82]), Pair([90], [91]), Pair([60, 61], [99, 12])]


@pytest.fixture(scope="module")
def llm(byte_checkpoint: Path) -> LLM:
    return LLM(str(byte_checkpoint), max_rows=4)


def _log_probabilities(llm: LLM, row: list[int], scale: float, prompt: int) -> torch.Tensor:
    def logits(ids: list[int]) -> torch.Tensor:
        with torch.no_grad():
            return llm.model(torch.tensor([ids])).logits[0]

    own = logits(row)
    if scale:
        without = logits([llm.special.mask] * prompt + row[prompt:])
        own = without + (scale + 1) * (own - without)
    return own.double().log_softmax(-1)


def _exact(llm: LLM, pair: Pair, scale: float = 0.0) -> float:
    """Every l equally likely, and given l every choice of l positions."""
    length, first = len(pair.answer), len(pair.prompt)
    total = 0.0
    for count in range(1, length + 1):
        choices = list(combinations(range(length), count))
        for masked in choices:
            answer = [llm.special.mask if n in masked else t for n, t in enumerate(pair.answer)]
            table = _log_probabilities(llm, pair.prompt + answer, scale, first)
            found = sum(table[first + n, pair.answer[n]].item() for n in masked)
            total += length / count * found / len(choices) / length
    return total


@pytest.mark.parametrize("scale", [0.0, 1.5])
def test_the_estimate_converges_to_the_sum_over_all_masks(llm: LLM, scale: float) -> None:
    exact = [_exact(llm, pair, scale) for pair in PAIRS]
    found = list(log_likelihoods(llm, PAIRS, mc_num=60_000, cfg_scale=scale))
    assert found == pytest.approx(exact, rel=0.01)


def test_few_draws_are_unbiased_and_the_seed_decides_them(llm: LLM) -> None:
    pair = PAIRS[0]
    few = [next(log_likelihoods(llm, [pair], mc_num=2, seed=seed)) for seed in range(200)]
    assert np.std(few) > 0
    error = np.std(few) / np.sqrt(len(few))
    assert abs(np.mean(few) - _exact(llm, pair)) < 4 * error
    assert next(log_likelihoods(llm, [pair], mc_num=2, seed=7)) == few[7]


def test_batch_mates_change_nothing_and_an_empty_answer_is_certain(llm: LLM) -> None:
    alone = [next(log_likelihoods(llm, [pair], mc_num=9)) for pair in PAIRS]
    mixed = [PAIRS[0], Pair([70], []), *PAIRS[1:], Pair([], [])]
    together = list(log_likelihoods(llm, mixed, mc_num=9))
    assert together == pytest.approx([alone[0], 0.0, alone[1], alone[2], 0.0], rel=1e-5)


def test_greedy_is_committing_the_surest_token_again_and_again(llm: LLM) -> None:
    """Decoded here step by step with transformers' forward; MASK is never a candidate."""
    pairs = []
    for pair in PAIRS:
        row = pair.prompt + [llm.special.mask] * 3
        for _ in range(3):
            table = _log_probabilities(llm, row, 0.0, 0)
            table[:, llm.special.mask] = -torch.inf
            best, token = table.max(-1)
            at = max((n for n, t in enumerate(row) if t == llm.special.mask), key=best.__getitem__)
            row[at] = int(token[at])
        answer = row[len(pair.prompt) :]
        wrong = [*answer[:2], (answer[2] + 1) % 200 + 6]
        pairs += [Pair(pair.prompt, answer), Pair(pair.prompt, wrong)]
    found = dict(greedy_answers(llm, pairs))
    assert [found[n] for n in range(len(pairs))] == [True, False] * len(PAIRS)
