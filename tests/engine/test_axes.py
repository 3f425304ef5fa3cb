"""Every length policy with every commit rule, exact and cached: against the naive decoders."""

from itertools import product
from typing import Any

import pytest

from rho_eos import DecodeParams
from rho_eos.base.outputs import Output
from rho_eos.decoding.registry import COMMITS
from tests.reference.bridge import IDS, logits_of, rule_of
from tests.reference.cached import CacheRule, NaiveTransformer, window_decode
from tests.reference.cases import LIMITS, MODELS, engine_decode, some_prompts
from tests.reference.decoder import Result, returned_tokens
from tests.reference.decoder import decode as reference_decode
from tests.reference.random_llada import random_llada

LENGTHS: dict[str, dict[str, Any]] = {
    "rho-eos": {},
    "daedal": {"signal": "density"},
    "fixed": {"initial_length": 40},
    "scout": {"look": 96, "ahead": 0, "margin": 8, "max_new_tokens": 96},
}
#: Numbers at which each rule has something to decide on random models.
RULES: dict[str, dict[str, Any]] = {
    "threshold": {"threshold": 0.6},
    "quota": {"steps_per_block": 5, "threshold": 0.95},
    "factor": {"factor": 0.8},
    "entropy-bound": {"gamma": 0.7},
    "klass": {"threshold": 0.3, "stability": 0.5, "stable_steps": 2},
    "wino": {"draft": 0.3, "verify": 0.6},
}
SMALL = {"cache": "window", "cache_commits": 9, "cache_steps": 5, "cache_window": 6}
COMBINATIONS = list(product(LENGTHS, RULES))


def params_of(length: str, rule: str, **more: Any) -> DecodeParams:
    given = {**LIMITS, **LENGTHS[length], **RULES[rule], **more}
    return DecodeParams(policy=length, commit=rule, **given)


def compare(ours: Output, theirs: Result) -> None:
    assert ours.canvas_token_ids == theirs.canvas
    assert ours.usage.nfe == theirs.nfe
    assert ours.usage.positions_evaluated == theirs.positions_evaluated


def test_every_rule_is_here() -> None:
    assert set(RULES) == {name for name in COMMITS.all() if not COMMITS.is_foreign(name)}


@pytest.mark.parametrize("block", [12, None])
@pytest.mark.parametrize("name", MODELS)
def test_exact_decoding_is_what_the_naive_decoder_does(name: str, block: int | None) -> None:
    model, prompts = random_llada(**MODELS[name]), some_prompts(len(COMBINATIONS), seed=12)
    full = [
        params_of(*each, block_length=block, early_stop=False, trace=True) for each in COMBINATIONS
    ]
    reference = reference_decode(
        logits_of(model), prompts, [rule_of(how) for how in full], IDS, batch_size=8
    )
    for how, ours, theirs in zip(full, engine_decode(model, prompts, full), reference, strict=True):
        compare(ours, theirs)
        assert [record.rho for record in ours.trace] == theirs.densities, how
    early = [how.replaced(early_stop=True) for how in full]
    for ours, theirs in zip(engine_decode(model, prompts, early), reference, strict=True):
        assert ours.token_ids == returned_tokens(theirs.canvas, IDS)
        assert ours.usage.nfe <= theirs.nfe


@pytest.mark.parametrize("block", [12, None])
@pytest.mark.parametrize("name", MODELS)
def test_cached_decoding_is_what_the_naive_cache_does(name: str, block: int | None) -> None:
    model, prompts = random_llada(**MODELS[name]), some_prompts(len(COMBINATIONS), seed=13)
    cached = [
        params_of(*each, block_length=block, early_stop=False, **SMALL) for each in COMBINATIONS
    ]
    net, rule = NaiveTransformer(model), CacheRule(6, 9, 5)
    outputs = engine_decode(model, prompts, cached)
    for prompt, how, ours in zip(prompts, cached, outputs, strict=True):
        theirs = window_decode(net, prompt, rule_of(how), IDS, rule)
        compare(ours, theirs)
        assert ours.usage.refreshes == theirs.refreshes
    assert sum(output.usage.refreshes < output.usage.nfe for output in outputs) > len(outputs) / 2


@pytest.mark.parametrize("more", [{}, {"temperature": 0.8, "seed": 5}, {"cfg_scale": 1.2}])
def test_no_combination_depends_on_its_batch(more: dict[str, Any]) -> None:
    model, prompts = random_llada(**MODELS["balanced"]), some_prompts(len(COMBINATIONS), seed=14)
    params = [
        params_of(*each, **more, **(SMALL if index % 2 else {}))
        for index, each in enumerate(COMBINATIONS)
    ]
    alone = engine_decode(model, prompts, params, rows=1)
    together = engine_decode(model, prompts[::-1], params[::-1], rows=7)[::-1]
    for one, other in zip(alone, together, strict=True):
        assert one.canvas_token_ids == other.canvas_token_ids
        assert one.usage.positions_evaluated == other.usage.positions_evaluated


def test_the_rules_differ_and_one_of_them_takes_back() -> None:
    """Guard of the oracle: rules that did the same would prove nothing about each other."""
    ways: dict[str, list[Any]] = {rule: [] for rule in RULES}
    taken: list[Any] = []
    for name, rule in product(MODELS, RULES):
        prompts = some_prompts(4, seed=15)
        params = [params_of("fixed", rule, trace=True, early_stop=False)] * len(prompts)
        for record in (
            record
            for output in engine_decode(random_llada(**MODELS[name]), prompts, params)
            for record in output.trace
        ):
            ways[rule].append([at for at, _, _ in record.committed])
            taken += record.written
    assert len({str(way) for way in ways.values()}) == len(RULES)
    assert taken and all(token is None for _, token in taken)
