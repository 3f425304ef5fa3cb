"""The engine against the naive decoder: the same tokens for every policy, in mixed batches."""

import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rho_eos.base.outputs import Output
from rho_eos.base.plugins import load_plugin
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.registry import POLICIES as REGISTERED
from rho_eos.embedded.tasks import TASKS
from rho_eos.llm import LLM
from rho_eos.text.ask import Ask
from tests.reference.bridge import IDS, logits_of, rule_of
from tests.reference.cases import LIMITS, MODELS, engine_decode, some_prompts
from tests.reference.decoder import Ids, Result, returned_tokens
from tests.reference.decoder import decode as reference_decode
from tests.reference.random_llada import random_llada

EXAMPLES = ("frontier", "landing")  # policies that are examples

POLICIES: dict[str, dict[str, Any]] = {
    "fixed by τ": dict(policy="fixed", **LIMITS),
    "fixed, one a step": dict(policy="fixed", steps=16, **LIMITS),
    "fixed, several a step": dict(policy="fixed", steps=8, **LIMITS),
    "ρ-EOS asym": dict(**LIMITS),
    "ρ-EOS sym, linear, no blocks": dict(
        preset="sym", expansion="linear", **(LIMITS | {"block_length": None})
    ),
    "ρ-EOS constant, short horizon": dict(
        rho_low=0.3, rho_high=0.5, expansion="constant", expansion_base=3, horizon=7, **LIMITS
    ),
    "single stage, confidence": dict(signal="confidence", rho_low=0.15, rho_high=0.4, **LIMITS),
    "DAEDAL": dict(policy="daedal", **LIMITS),
    "DAEDAL, density": dict(policy="daedal", signal="density", **LIMITS),
    "DAEDAL, inserting to its limit": dict(policy="daedal", rho_low=0.0, **LIMITS),
    "frontier": dict(policy="frontier", **(LIMITS | {"max_new_tokens": 160})),
    "frontier from a long canvas": dict(
        policy="frontier", **(LIMITS | {"initial_length": 120, "max_new_tokens": 160})
    ),
    "landing": dict(policy="landing", **(LIMITS | {"max_new_tokens": 160})),
    "landing from a long canvas": dict(
        policy="landing", **(LIMITS | {"initial_length": 120, "max_new_tokens": 160})
    ),
    # Room and margin are given: with the cache they have other defaults.
    "scout": dict(
        policy="scout", look=160, ahead=0, margin=8, **(LIMITS | {"max_new_tokens": 160})
    ),
    "scout that looks twice": dict(
        policy="scout",
        look=160,
        ahead=8,
        margin=4,
        tie=0.3,
        trust=1.0,
        **(LIMITS | {"max_new_tokens": 200}),
    ),
    "scout without blocks": dict(
        policy="scout",
        look=160,
        ahead=0,
        margin=8,
        **(LIMITS | {"block_length": None, "max_new_tokens": 200}),
    ),
    "scout that trusts": dict(
        policy="scout", look=160, ahead=8, trust=0, **(LIMITS | {"max_new_tokens": 160})
    ),
    "blocks": dict(policy="blocks", **(LIMITS | {"block_length": None, "initial_length": 3})),
    "ρ-EOS with ties": dict(tie=0.2, threshold=0.99, **LIMITS),
    "ρ-EOS that spares content": dict(rho_low=0.2, rho_high=0.4, spare_content=True, **LIMITS),
}


@pytest.fixture(scope="module", autouse=True)
def example_policies() -> Iterator[None]:
    """They are registered while this module runs, and not for anybody else."""
    for name in EXAMPLES:
        load_plugin(str(Path(__file__).parents[2] / "examples" / f"{name}.py"))
    yield
    for name in EXAMPLES:
        del sys.modules[REGISTERED.find(name).__module__]
        REGISTERED.remove(name)


def every_policy() -> list[DecodeParams]:
    return [DecodeParams(**given) for given in POLICIES.values()]


@cache
def runs(name: str) -> tuple[list[Output], list[Output], list[Result]]:
    """Every policy on three prompts: ours to the canvas end, ours stopping early, the reference."""
    model = random_llada(**MODELS[name])
    prompts = some_prompts(3 * len(POLICIES))
    params = [how for how in every_policy() for _ in range(3)]
    full = [how.replaced(early_stop=False, trace=True) for how in params]
    rules = [rule_of(how) for how in full]
    return (
        engine_decode(model, prompts, full),
        engine_decode(model, prompts, params),
        reference_decode(logits_of(model), prompts, rules, IDS, batch_size=10),
    )


def of_policy(policy: str, rows: list[Any]) -> list[Any]:
    first = 3 * list(POLICIES).index(policy)
    return rows[first : first + 3]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("model", MODELS)
def test_every_policy_fills_the_same_canvas(model: str, policy: str) -> None:
    full, _, reference = runs(model)
    for ours, theirs in zip(of_policy(policy, full), of_policy(policy, reference), strict=True):
        assert ours.canvas_token_ids == theirs.canvas
        assert ours.usage.nfe == theirs.nfe
        assert ours.usage.positions_evaluated == theirs.positions_evaluated
        assert [record.rho for record in ours.trace] == theirs.densities


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("model", MODELS)
def test_stopping_early_saves_forwards_and_no_token(model: str, policy: str) -> None:
    _, early, reference = runs(model)
    for ours, theirs in zip(of_policy(policy, early), of_policy(policy, reference), strict=True):
        assert ours.token_ids == returned_tokens(theirs.canvas, IDS)
        assert ours.usage.nfe <= theirs.nfe


def test_an_end_that_comes_early_is_doubted_alike() -> None:
    how = DecodeParams(
        policy="scout",
        look=160,
        trust=0.05,
        tie=1.0,  # from left to right, so that no end is committed at first
        threshold=1.0,
        margin=2,
        early_stop=False,
        trace=True,
        **(LIMITS | {"max_new_tokens": 120}),
    )
    model, prompts = random_llada(seed=6, eos_share=0.15, sharpness=2.0), some_prompts(12, seed=6)
    outputs = engine_decode(model, prompts, [how] * 12)
    reference = reference_decode(logits_of(model), prompts, [rule_of(how)] * 12, IDS, 12)
    for ours, theirs in zip(outputs, reference, strict=True):
        assert ours.canvas_token_ids == theirs.canvas
        assert ours.usage.positions_evaluated == theirs.positions_evaluated
    doubts = [
        any(first.committed and not second.committed for first, second in pairwise(output.trace))
        for output in outputs
    ]
    assert sum(doubts) >= 3


def test_the_models_exercise_every_move() -> None:
    """Guard of the oracle: canvases that never grew, shrank or were inserted into prove nothing."""

    def actions(policy: str) -> set[str]:
        outputs = [output for name in MODELS for output in of_policy(policy, runs(name)[0])]
        return {record.action for output in outputs for record in output.trace}

    assert {"hold", "expand", "contract"} <= actions("ρ-EOS asym")
    assert {"hold", "expand", "contract"} <= actions("single stage, confidence")
    assert {"hold", "expand", "contract"} <= actions("ρ-EOS that spares content")
    assert {"hold", "expand"} <= actions("frontier") | actions("landing")
    assert "contract" in actions("frontier from a long canvas")
    assert "contract" in actions("landing from a long canvas")
    assert {"hold", "expand"} <= actions("scout")
    assert "contract" in actions("scout that trusts")
    assert any(
        [record.length for record in output.trace if not record.committed] == [80]
        for name in MODELS
        for output in of_policy("scout that looks twice", runs(name)[0])
    ), "no longer canvas was looked at"
    assert {"hold", "expand"} <= actions("blocks")
    assert {"hold", "expand", "close"} <= actions("DAEDAL")
    assert {"hold", "close", "insert"} <= actions("DAEDAL, inserting to its limit")
    texts = [len(output.token_ids) for name in MODELS for output in runs(name)[1]]
    assert max(texts) > 10
    assert min(texts) == 0


def test_a_result_depends_neither_on_batch_size_nor_on_order() -> None:
    model = random_llada(seed=2, eos_share=0.4, sharpness=4.0)
    prompts = some_prompts(16, seed=5)
    kinds = [
        *every_policy(),
        DecodeParams(temperature=0.7, seed=11, **LIMITS),
        DecodeParams(cfg_scale=1.5, **LIMITS),
    ]
    params = [kinds[index % len(kinds)] for index in range(len(prompts))]
    alone = engine_decode(model, prompts, params, rows=1)
    order = np.random.default_rng(0).permutation(len(prompts))
    for rows in (3, 8, 32):
        together = engine_decode(model, prompts, params, rows=rows)
        shuffled = engine_decode(
            model, [prompts[i] for i in order], [params[i] for i in order], rows=rows
        )
        for index in range(len(prompts)):
            assert together[index].canvas_token_ids == alone[index].canvas_token_ids
            assert together[index].usage.positions_evaluated == (
                alone[index].usage.positions_evaluated
            )
        for at, index in enumerate(order):
            assert shuffled[at].canvas_token_ids == alone[index].canvas_token_ids


def test_dream_is_read_one_position_to_the_left(parity_model: Any) -> None:
    model = parity_model("dream")
    prompts = some_prompts(6, vocabulary=160)
    limits = {"initial_length": 12, "max_new_tokens": 40, "block_length": 8}
    params = [
        DecodeParams(early_stop=False, **limits),
        DecodeParams(policy="fixed", early_stop=False, **limits),
        DecodeParams(policy="daedal", early_stop=False, **limits),
    ] * 2
    ours = engine_decode(model, prompts, params)
    rules = [rule_of(how) for how in params]
    shifted = reference_decode(logits_of(model, shift=1), prompts, rules, IDS, batch_size=6)
    straight = reference_decode(logits_of(model), prompts, rules, IDS, batch_size=6)
    assert [output.canvas_token_ids for output in ours] == [row.canvas for row in shifted]
    assert [row.canvas for row in straight] != [row.canvas for row in shifted]


@torch.inference_mode()
def test_guidance_masks_the_prompt_and_only_the_prompt() -> None:
    """Against the formula, on padded rows: prompt masked, canvas as it is, then extrapolated."""
    model = random_llada(seed=4, eos_share=0.3, sharpness=3.0)
    prompts = some_prompts(2, seed=9)
    scale = 0.8
    params = [
        DecodeParams(cfg_scale=scale, early_stop=False, **LIMITS),
        DecodeParams(cfg_scale=scale, policy="daedal", early_stop=False, **LIMITS),
    ]
    plain = logits_of(model)
    for prompt in prompts:

        def guided(
            ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, n: int = len(prompt)
        ) -> torch.Tensor:
            masked = ids.clone()
            masked[:, :n] = IDS.mask
            own, without = plain(ids, mask, positions), plain(masked, mask, positions)
            return without + (scale + 1) * (own - without)

        theirs = reference_decode(guided, [prompt] * 2, [rule_of(p) for p in params], IDS)
        ours = engine_decode(model, [prompt] * 2, params)
        unguided = engine_decode(model, [prompt] * 2, [p.replaced(cfg_scale=0.0) for p in params])
        for output, row, without in zip(ours, theirs, unguided, strict=True):
            assert output.canvas_token_ids == row.canvas
            assert output.usage.positions_evaluated == 2 * row.positions_evaluated
            assert output.usage.nfe == row.nfe
            assert output.canvas_token_ids != without.canvas_token_ids


def test_room_for_a_model_that_compresses_is_kept_alike() -> None:
    """What random models do not do: other words on a short canvas, and an end far from a long
    one's."""
    llm = LLM("terse")
    special = llm.special
    how = DecodeParams(policy="scout", max_new_tokens=600, early_stop=False, trace=True)
    problems = [TASKS[task].problem(seed) for task in TASKS for seed in (430, 431)]
    requests = [llm.preparer.prepare(Ask(each.prompt, how))[0] for each in problems]
    outputs = llm.generate([each.prompt for each in problems], how)
    ids = Ids(mask=special.mask, eos=special.eos, ends=special.ends)
    prompts = [request.canvas.prompt.tolist() for request in requests]
    rules = [rule_of(request.params) for request in requests]
    reference = reference_decode(logits_of(llm.model), prompts, rules, ids, 8)
    for ours, theirs in zip(outputs, reference, strict=True):
        assert ours.canvas_token_ids == theirs.canvas
        assert ours.usage.positions_evaluated == theirs.positions_evaluated
    wide = [output for output in outputs if output.trace[-1].length >= 1.4 * output.usage.e_token]
    assert len(wide) >= 4
    assert all("contract" in {record.action for record in output.trace} for output in wide)
