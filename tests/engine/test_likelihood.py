"""Scores against sums over all masks and chains, made here from transformers' own forward."""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rho_eos import LLM
from rho_eos.base.errors import UserError
from rho_eos.lm_eval.likelihood import greedy_answers
from rho_eos.text.pairs import Pair
from tests.models.parity import PARITY

PAIRS = [([70, 71, 72], [80, 81, 82]), ([90], [91]), ([60, 61], [99, 12])]
LONG = ([70, 71], [80, 81, 82, 99, 12, 91, 80, 33, 47])


@pytest.fixture(scope="module")
def llm(byte_checkpoint: Path) -> LLM:
    return LLM(str(byte_checkpoint), max_rows=4)


def table_of(llm: LLM, row: list[int], prompt: int, scale: float = 0.0) -> torch.Tensor:
    def logits(ids: list[int]) -> torch.Tensor:
        with torch.no_grad():
            return llm.model(torch.tensor([ids])).logits[0]

    own = logits(row)
    if scale:
        without = logits([llm.special.mask] * prompt + row[prompt:])
        own = without + (scale + 1) * (own - without)
    return own.double().log_softmax(-1)


def masked_sum(llm: LLM, pair: Any, masked: Any, read: Any = None, scale: float = 0.0) -> float:
    """log P of the tokens of `read` where those of `masked` are hidden."""
    prompt, answer = pair
    hidden = [llm.special.mask if n in masked else token for n, token in enumerate(answer)]
    table = table_of(llm, prompt + hidden, len(prompt), scale)
    return sum(table[len(prompt) + n, answer[n]].item() for n in (masked if read is None else read))


def exact_bound(llm: LLM, pair: Any, scale: float = 0.0) -> float:
    """Every number of MASKs equally likely, and given it every choice of positions."""
    length = len(pair[1])
    total = 0.0
    for count in range(1, length + 1):
        choices = list(combinations(range(length), count))
        found = sum(masked_sum(llm, pair, each, scale=scale) for each in choices)
        total += found / len(choices) / count
    return total


@pytest.mark.parametrize("scale", [0.0, 1.5])
def test_a_short_answer_is_summed_over_all_masks(llm: LLM, scale: float) -> None:
    scores = llm.score(PAIRS, cfg_scale=scale)
    assert [each.logprob for each in scores] == pytest.approx(
        [exact_bound(llm, pair, scale) for pair in PAIRS], rel=1e-4
    )
    assert [each.standard_error for each in scores] == [0.0] * 3
    assert [each.forwards for each in scores] == [7, 1, 3]


def test_draws_are_unbiased_and_err_as_they_say(llm: LLM) -> None:
    """The standard error is that of the estimate: how far estimates of other seeds lie apart."""
    wanted = exact_bound(llm, LONG)
    scores = [llm.score([LONG], draws=16, seed=seed)[0] for seed in range(60)]
    found = np.array([each.logprob for each in scores])
    apart = found.std(ddof=1)
    assert abs(found.mean() - wanted) < 4 * apart / np.sqrt(len(found))
    said = np.sqrt(np.mean([each.standard_error**2 for each in scores if each.standard_error]))
    assert 0.7 * apart < said < 1.5 * apart
    assert llm.score([LONG], draws=1)[0].standard_error is None


def test_the_chain_is_what_is_written_from_left_to_right(llm: LLM) -> None:
    length = len(LONG[1])
    wanted = [masked_sum(llm, LONG, range(at, length), [at]) for at in range(length)]
    [score] = llm.score([LONG], method="chain")
    assert score.token_logprobs == pytest.approx(wanted, rel=1e-4)
    assert score.logprob == pytest.approx(sum(wanted)) and score.forwards == length
    assert score.standard_error == 0


def test_chains_of_all_answers_sum_to_one(llm: LLM) -> None:
    """What a probability does and a bound does not."""
    every = [([70], [first, second]) for first in range(0, 100, 50) for second in range(262)]
    first = np.logaddexp.reduce(table_of(llm, [70, *[llm.special.mask] * 2], 1)[1, :100:50].numpy())
    found = np.logaddexp.reduce([each.logprob for each in llm.score(every, method="chain")])
    assert found == pytest.approx(first, abs=1e-4)


def test_the_pseudo_likelihood_hides_one_token_at_a_time(llm: LLM) -> None:
    wanted = [masked_sum(llm, LONG, [at]) for at in range(len(LONG[1]))]
    [score] = llm.score([LONG], method="pseudo")
    assert score.token_logprobs == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("method", ["bound", "chain", "pseudo"])
def test_batch_mates_change_nothing_and_tokens_sum_up(llm: LLM, method: Any) -> None:
    items = [*PAIRS, LONG]
    alone = [llm.score(item, method=method, draws=9)[0] for item in items]
    together = llm.score(items[::-1], method=method, draws=9)[::-1]
    assert [a.logprob for a in alone] == pytest.approx([t.logprob for t in together], rel=1e-5)
    for each in together:
        assert sum(each.token_logprobs) == pytest.approx(each.logprob)
    assert llm.score(LONG, draws=9) == llm.score(LONG, draws=9)
    assert llm.score(LONG, draws=9)[0].logprob != llm.score(LONG, draws=9, seed=1)[0].logprob


def test_right_answers_of_the_embedded_model_are_likely() -> None:
    llm = LLM("tiny")
    question = "Mia has 8 plums. 1) buys 6. 2) eats 5. How many are there now?"
    right = llm.generate([question])[0].text
    assert right.endswith("9")
    good, bad = llm.score([(question, right), (question, right[:-1] + "3")], method="chain")
    assert good.logprob > -2 > -5 > bad.logprob
    mapped = {"messages": [{"role": "user", "content": question}], "answer": right}
    assert llm.score(mapped, method="chain") == [good]


@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        (("a", ""), "the answer is empty"),
        (("", "a"), "the prompt is empty"),
        (("a", "b", "c"), "a text, or a pair"),
        (7, "a text, or a pair"),
        ({"prompt": "a"}, "takes a prompt and an answer"),
        (("a", [10**6]), "the vocabulary has"),
        (("a", "b" * 600), "the model takes 512"),
    ],
)
def test_what_is_no_pair_is_one_sentence(llm: LLM, item: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        llm.score([item])


@pytest.mark.parametrize("prompt", [3, 4, 6])
@pytest.mark.parametrize("name", ["sdar-b4", "a2d-qwen3-bd3lm", "fast-dllm-v2"])
def test_the_chain_of_a_model_in_blocks(name: str, prompt: int) -> None:
    """Each token behind all before it, with its own block masked to the end and nothing behind."""
    llm = LLM(str(PARITY / name), mask_token_id=3, eos_token_id=2, attention="blocks")
    blocks = llm.checkpoint.blocks
    assert blocks is not None
    row = [*range(10, 10 + prompt), 30, 31, 32, 33, 34, 35, 36]
    offset = -prompt % blocks.length if blocks.alignment == "prompt" else 0
    wanted = []
    for at in range(prompt, len(row)):
        end = ((at + offset) // blocks.length + 1) * blocks.length - offset
        ids = torch.tensor([row[:at] + [3] * (end - at)])
        offsets = torch.tensor([offset])
        with torch.no_grad():
            logits = llm.model(ids, block_length=blocks.length, block_offsets=offsets).logits[0]
        table = logits.double().log_softmax(-1)
        wanted.append(table[at - llm.model.prediction_shift, row[at]].item())
    [score] = llm.score((row[:prompt], row[prompt:]), method="chain")
    assert score.token_logprobs == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("method", ["bound", "pseudo"])
def test_other_scores_of_a_model_in_blocks_are_refused(method: Any) -> None:
    with pytest.raises(UserError, match="block diffusion"):
        LLM("tiny-blocks").score("a text", method=method)


def test_greedy_is_committing_the_surest_token_again_and_again(llm: LLM) -> None:
    """Decoded here step by step with transformers' forward; MASK is never a candidate."""
    pairs = []
    for prompt, _ in PAIRS:
        row = prompt + [llm.special.mask] * 3
        for _ in range(3):
            table = table_of(llm, row, 0)
            table[:, llm.special.mask] = -torch.inf
            best, token = table.max(-1)
            at = max((n for n, t in enumerate(row) if t == llm.special.mask), key=best.__getitem__)
            row[at] = int(token[at])
        answer = row[len(prompt) :]
        wrong = [*answer[:2], (answer[2] + 1) % 200 + 6]
        pairs += [Pair(prompt, answer), Pair(prompt, wrong)]
    found = dict(greedy_answers(llm, pairs))
    assert [found[n] for n in range(len(pairs))] == [True, False] * len(PAIRS)
