"""Block diffusion in the engine: against a naive decoder, kept against computed anew, any batch."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rho_eos import LLM
from rho_eos.base.errors import UserError
from rho_eos.base.outputs import Output
from rho_eos.decoding.policy import Blockwise
from rho_eos.decoding.registry import COMMITS, policies
from rho_eos.engine.batch import spans_of
from tests.conftest import DATA
from tests.reference.blocks import decode_blocks, rule_of

GOLDEN = DATA / "golden" / "blocks"
MASK, ENDS, VOCABULARY = 3, (2,), 96
#: Where blocks are counted from, the shift of predictions, and whether a store opens a block.
FAMILIES = {
    "sdar": (True, 0, False),
    "a2d-bd3lm": (False, 0, False),
    "llada2": (True, 0, False),
    "fast-dllm-v2": (True, 1, True),
}
RULES: list[dict[str, Any]] = [
    {"commit": "threshold", "threshold": 0.3},
    {"commit": "threshold", "threshold": 0.2, "sub_block_length": 2},
    {"commit": "quota", "steps_per_block": 3, "threshold": 0.4, "spread": "first"},
    {"commit": "quota", "steps_per_block": 3, "threshold": 1.0, "spread": "even"},
    {"commit": "editing", "threshold": 0.3, "editing_threshold": 0.2, "max_post_steps": 3},
]


@cache
def llm_of(family: str, **engine: Any) -> LLM:
    folder = str(GOLDEN / family / "checkpoint")
    return LLM(folder, mask_token_id=MASK, eos_token_id=ENDS[0], max_rows=8, **engine)


def prompts_of(lengths: list[int], seed: int) -> list[dict[str, list[int]]]:
    rng = np.random.default_rng(seed)
    drawn = [rng.integers(4, VOCABULARY, size=length).tolist() for length in lengths]
    return [{"prompt_token_ids": ids} for ids in drawn]


def tokens(outputs: list[Output]) -> list[list[int]]:
    return [output.token_ids for output in outputs]


@settings(max_examples=12)
@given(
    family=st.sampled_from(sorted(FAMILIES)),
    rule=st.sampled_from(RULES),
    block=st.sampled_from([1, 2, 4, 7, 8]),
    lengths=st.lists(st.integers(1, 18), min_size=1, max_size=4),
    most=st.integers(1, 20),
    seed=st.integers(0, 99),
)
def test_the_engine_decodes_as_the_naive_decoder_does(
    family: str, rule: dict[str, Any], block: int, lengths: list[int], most: int, seed: int
) -> None:
    absolute, shift, opens = FAMILIES[family]
    llm, prompts = llm_of(family), prompts_of(lengths, seed)
    params = {**rule, "block_length": block, "max_new_tokens": most, "early_stop": False}
    if block == 1 and opens:
        return  # every token is read from a store, and no rule has anything to choose
    kept = llm.generate(prompts, [params] * len(prompts))
    exact = llm.generate(prompts, [{**params, "cache": "none"}] * len(prompts))
    apart = llm.generate(prompts, [{**params, "cache_store": "separate"}] * len(prompts))
    assert tokens(kept) == tokens(exact) == tokens(apart)
    for prompt, ours, anew in zip(prompts, kept, exact, strict=True):

        def logits(ids: Any, length: int, offset: int) -> Any:
            return llm.model(ids, block_length=length, block_offsets=offset).logits

        theirs = decode_blocks(
            logits,
            prompt["prompt_token_ids"],
            rule_of(params),
            MASK,
            ENDS,
            absolute,
            shift,
            opens,
        )
        assert ours.canvas_token_ids == theirs.answer
        assert ours.usage.nfe == anew.usage.nfe == theirs.forwards
        assert ours.usage.positions_exact == anew.usage.positions_evaluated


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_nothing_depends_on_batch_mates_or_on_what_is_kept(family: str) -> None:
    """Seeds, temperature, stops, log-probabilities, least and most lengths, all rules at once."""
    llm, prompts = llm_of(family), prompts_of([1, 4, 5, 8, 11, 16, 21, 32], seed=3)
    each: list[dict[str, Any]] = [
        {"temperature": 0.7, "seed": 4},
        {"commit": "entropy-bound", "gamma": 1.0},
        {"commit": "factor", "logprobs": 2},
        {"commit": "klass", "threshold": 0.2, "stability": 1.0},
        {"commit": "wino", "draft": 0.2, "verify": 0.3, "temperature": 0.5},
        {"min_new_tokens": 9, "stop_token_ids": [7, 11], "top_k": 3, "temperature": 1.0},
        {"cfg_scale": 0.5},
        {"policy": "fixed", "initial_length": 13},
    ]
    each = [{"max_new_tokens": 18, "block_length": 4, **one} for one in each]
    together = llm.generate(prompts, each)
    for number, (prompt, params) in enumerate(zip(prompts, each, strict=True)):
        for how in ({}, {"cache": "none"}, {"cache_store": "separate"}):
            [alone] = llm.generate([prompt], {**params, **how})
            assert alone.token_ids == together[number].token_ids, (params, how)
            assert alone.finish_reason == together[number].finish_reason
            if params.get("logprobs"):
                ours, theirs = (one.logprobs or [] for one in (alone, together[number]))
                assert [one.logprob for one in ours] == pytest.approx(
                    [one.logprob for one in theirs], abs=1e-4
                )


@pytest.mark.parametrize("length", [64, 100])
def test_one_block_over_everything_is_full_attention(length: int) -> None:
    """The same weights, once in blocks of 64 or 100 and once as a model that sees everything."""
    prompts = prompts_of([7, 12, 30], seed=5)
    shared = {"policy": "fixed", "initial_length": 20, "threshold": 0.3, "block_length": length}
    blocks = llm_of("a2d-bd3lm").generate(prompts, {**shared, "cache": "none"})
    full = llm_of("a2d-bd3lm", attention="full").generate(prompts, shared)
    # From the end of the prompt it is a block of its own, which does not see the answer.
    assert tokens(blocks) != tokens(full)
    prompts = prompts_of([1], seed=6)
    wide = {"block_length": length, "max_new_tokens": 20, "early_stop": False, "threshold": 0.3}
    [in_one] = llm_of("sdar").generate(prompts, wide)
    ids = prompts[0]["prompt_token_ids"]
    theirs = decode_blocks(
        lambda row, *_: llm_of("sdar").model(row, block_length=10**4).logits,
        ids,
        rule_of(wide),
        MASK,
        ENDS,
        absolute=True,
    )
    assert in_one.canvas_token_ids == theirs.answer


@settings(max_examples=60)
@given(
    first=st.integers(0, 700),
    count=st.integers(1, 700),
    length=st.sampled_from([1, 4, 5, 32, 64]),
    offset=st.integers(0, 63),
)
def test_spans_are_the_rule_of_blocks(first: int, count: int, length: int, offset: int) -> None:
    """Also where a prompt is longer than what shares one mask."""
    first, offset, seen = first // length * length, offset % length, []
    first = max(0, first - offset)
    for span in spans_of(first, first + count, length, offset):
        mask = np.ones((span.count, span.keys), dtype=bool) if span.mask is None else span.mask
        seen += [np.pad(row, (0, first + count - span.keys)) for row in mask]
    block = (np.arange(first + count) + offset) // length
    assert np.array_equal(np.array(seen), block[None] <= block[first:, None])


def test_other_weights_are_other_prefixes() -> None:
    """A model that is trained where it is: what was kept before is of no use any more."""
    folder = str(GOLDEN / "sdar" / "checkpoint")
    llm, [prompt] = LLM(folder, mask_token_id=MASK, eos_token_id=2), prompts_of([40], seed=11)
    params = {"block_length": 4, "max_new_tokens": 12, "threshold": 0.3}
    llm.generate([prompt], params)
    for weight in llm.model.parameters():
        weight.add_(0.05 * weight.std() * torch.randn_like(weight))
    [kept] = llm.generate([prompt], params)
    [anew] = llm.generate([prompt], {**params, "cache": "none"})
    assert kept.usage.positions_reused == 0
    assert kept.token_ids == anew.token_ids


def test_no_length_of_blocks_means_the_models_own() -> None:
    llm, prompts = llm_of("sdar"), prompts_of([9, 12], seed=12)
    for rule in RULES:
        params = {**rule, "max_new_tokens": 24}
        trained = llm.checkpoint.blocks
        assert trained is not None
        expected = llm.generate(prompts, {**params, "block_length": trained.length})
        assert tokens(llm.generate(prompts, {**params, "block_length": None})) == tokens(expected)


@pytest.mark.parametrize("prompt", [470, 500, 511])
def test_an_answer_goes_up_to_the_end_of_the_context(prompt: int) -> None:
    """Whatever was asked for: the first block is all the room that such a model needs."""
    llm = llm_of("sdar")
    [output] = llm.generate(prompts_of([prompt], 13), {"early_stop": False, "threshold": 0.1})
    assert len(output.token_ids) <= 512 - prompt
    assert output.usage.e_token <= 512 - prompt


def test_a_large_block_is_written_for_a_few_tokens() -> None:
    llm = llm_of("sdar")
    params = {"block_length": 128, "max_new_tokens": 1, "early_stop": False, "threshold": 1.0}
    [output] = llm.generate(prompts_of([5], 14), params)
    assert output.usage.nfe == 123 and output.usage.n_token == 1


def test_a_shared_prefix_is_computed_once() -> None:
    """The next turn of a chat, and a second request with the same beginning, reuse whole blocks."""
    llm = LLM(str(GOLDEN / "sdar" / "checkpoint"), mask_token_id=MASK, eos_token_id=2, max_rows=8)
    params = {"block_length": 4, "max_new_tokens": 12, "threshold": 0.3}
    [prompt] = prompts_of([30], seed=8)
    [first] = llm.generate([prompt], params)
    assert first.usage.positions_reused == 0
    turn = [*prompt["prompt_token_ids"], *first.token_ids, 9, 10, 11]
    [reused] = llm.generate([{"prompt_token_ids": turn}], params)
    [anew] = llm_of("sdar").generate([{"prompt_token_ids": turn}], {**params, "cache": "none"})
    assert reused.token_ids == anew.token_ids
    # All whole blocks of prompt and answer but the one that the answer ended in.
    least = (len(prompt["prompt_token_ids"]) + len(first.token_ids)) // 4 * 4 - 4
    assert least <= reused.usage.positions_reused <= len(turn)
    [again] = llm.generate([prompt], params)
    assert again.token_ids == first.token_ids
    assert again.usage.positions_reused == 28
    [guided] = llm.generate([prompt], {**params, "cfg_scale": 0.5})
    assert guided.usage.positions_reused == 0  # half of its rows have no prompt
    [other] = llm.generate([prompt], {**params, "block_length": 5})
    assert other.usage.positions_reused == 0  # other blocks, other keys and values


def test_blocks_counted_from_the_prompts_end_are_not_shared() -> None:
    llm, [prompt] = llm_of("a2d-bd3lm"), prompts_of([30], seed=9)
    outputs = [llm.generate([prompt], {"max_new_tokens": 8})[0] for _ in range(2)]
    assert [output.usage.positions_reused for output in outputs] == [0, 0]


def test_kept_prefixes_give_way_to_rows() -> None:
    """With room for one row only, everything still runs, and exactly."""
    small = llm_of("sdar", max_cache_megabytes=1)
    assert small.runner.stores is not None
    small.runner.stores.limit = 256  # positions: two allocations
    prompts = prompts_of([60, 61, 62, 63], seed=10)
    params = {"block_length": 4, "max_new_tokens": 8, "threshold": 0.3}
    for prompt in prompts:
        [kept] = small.generate([prompt], params)
        [anew] = llm_of("sdar").generate([prompt], {**params, "cache": "none"})
        assert kept.token_ids == anew.token_ids
    stores = small.runner.stores
    assert stores.used + stores.prefixes.positions <= stores.limit


def test_what_a_block_model_cannot_do_is_refused_in_a_sentence() -> None:
    llm, [prompt] = llm_of("sdar"), prompts_of([8], seed=1)
    for name, policy in policies().items():
        if not issubclass(policy, Blockwise):
            with pytest.raises(UserError, match="behind the block"):
                llm.generate([prompt], {"policy": name})
    for asked in ({"suffix": [5, 6]}, {"template": [5, MASK, 6]}):
        with pytest.raises(UserError, match="block diffusion"):
            llm.generate([prompt], **asked)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="cache"):
        llm.generate([prompt], {"cache": "window"})
    with pytest.raises(UserError, match="cache"):
        llm_of("a2d-bd3lm", attention="full").generate([prompt], {"cache": "blocks"})
    with pytest.raises(UserError, match="initial_length"):
        llm.generate([prompt], {"initial_length": 12})


@pytest.mark.parametrize("commit", [name for name in COMMITS.all() if not COMMITS.is_foreign(name)])
@pytest.mark.parametrize("policy", ["blocks", "fixed"])
def test_every_rule_goes_with_every_blockwise_policy(policy: str, commit: str) -> None:
    llm, prompts = llm_of("sdar"), prompts_of([3, 4, 9], seed=2)
    params = {"policy": policy, "commit": commit, "max_new_tokens": 24, "block_length": 4}
    params |= {"initial_length": 24} if policy == "fixed" else {}
    for early_stop in (True, False):
        kept = llm.generate(prompts, {**params, "early_stop": early_stop})
        exact = llm.generate(prompts, {**params, "early_stop": early_stop, "cache": "none"})
        assert tokens(kept) == tokens(exact)
        assert all(len(output.token_ids) <= 24 for output in kept)
    stopped = llm.generate(prompts, params)
    assert tokens(stopped) == tokens(exact)  # ending inside a block changes no token
