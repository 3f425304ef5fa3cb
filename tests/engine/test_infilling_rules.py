"""Rows with text behind and between what is decoded: against the naive decoder, cached, mixed."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from rho_eos.base.outputs import FinishReason, Output
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.canvas import Canvas
from rho_eos.decoding.edits import Delete
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.policies.dreamon import DreamOn
from rho_eos.decoding.prediction import Prediction
from rho_eos.engine.engine import Engine
from rho_eos.engine.request import Request
from rho_eos.engine.runner import ModelRunner
from tests.reference.bridge import IDS, SPECIAL, logits_of, rule_of
from tests.reference.cases import MODELS, some_prompts
from tests.reference.decoder import Result
from tests.reference.decoder import decode as reference_decode
from tests.reference.random_llada import random_llada
from tests.requests import request as request_for

EXPAND = 12  # a token that the random models like
WITH_EXPAND = SpecialTokens(SPECIAL.mask, SPECIAL.eos, SPECIAL.end_of_turn, EXPAND)
LIMITS = {"initial_length": 9, "max_new_tokens": 24}
POLICIES = {
    "fixed by τ": DecodeParams(policy="fixed", block_length=4, **LIMITS),
    "fixed, two a step": DecodeParams(
        policy="fixed", commit="quota", steps=5, block_length=None, **LIMITS
    ),
    "cal": DecodeParams(policy="cal", evidence="confidence", **LIMITS),
    "cal by the suffix": DecodeParams(policy="cal", evidence="suffix", behind=3, **LIMITS),
    "cal, impatient, in strides": DecodeParams(
        policy="cal", evidence="confidence", patience=1, stride=3, **LIMITS
    ),
    "cal to its limits": DecodeParams(policy="cal", evidence="confidence", patience=99, **LIMITS),
    "dreamon": DecodeParams(policy="dreamon", **LIMITS),
    "dreamon by probability": DecodeParams(policy="dreamon", order="confidence", **LIMITS),
    "dreamon by margin": DecodeParams(policy="dreamon", order="margin", **LIMITS),
    "dreamon, two expansions": DecodeParams(policy="dreamon", expansions=2, **LIMITS),
    "dreamon, seven steps": DecodeParams(policy="dreamon", steps=7, **LIMITS),
}
ROWS = 3


def decode(runner: ModelRunner, requests: list[Request], rows: int = 8) -> list[Output]:
    engine = Engine(runner, WITH_EXPAND, lambda ids: " ".join(map(str, ids)), max_rows=rows)
    return engine.finish([engine.submit(request) for request in requests])


def requests_for(params: list[DecodeParams], seed: int = 0) -> list[Request]:
    before, behind = some_prompts(len(params), seed), some_prompts(len(params), seed + 1)
    return [
        request_for(str(index), prompt, how, suffix=[*suffix, SPECIAL.eos], special=WITH_EXPAND)
        for index, (prompt, suffix, how) in enumerate(zip(before, behind, params, strict=True))
    ]


@cache
def runs(name: str) -> tuple[list[Output], list[Result]]:
    """Every policy on some rows, all in one engine, and the same by the reference."""
    model = random_llada(**MODELS[name])
    params = [how.replaced(trace=True) for how in POLICIES.values() for _ in range(ROWS)]
    requests = requests_for(params)
    rules = [rule_of(how, expand=EXPAND) for how in params]
    ours = decode(ModelRunner(model, WITH_EXPAND), requests)
    theirs = reference_decode(
        logits_of(model),
        [request.canvas.prompt.tolist() for request in requests],
        rules,
        IDS,
        batch_size=8,
        suffixes=[request.canvas.suffix.tolist() for request in requests],
    )
    return ours, theirs


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("model", MODELS)
def test_the_same_stands_between_prefix_and_suffix(model: str, policy: str) -> None:
    ours, theirs = runs(model)
    first = ROWS * list(POLICIES).index(policy)
    for output, row in zip(ours[first : first + ROWS], theirs[first : first + ROWS], strict=True):
        assert output.token_ids == [token for token in row.canvas if token != IDS.mask]
        if not policy.startswith("cal"):  # which tries several lengths in one forward
            assert output.usage.nfe == row.nfe
            assert output.usage.positions_evaluated == row.positions_evaluated
        assert output.usage.nfe <= row.nfe
        complete = IDS.mask not in row.canvas
        assert output.finish_reason is (FinishReason.STOP if complete else FinishReason.LENGTH)


def test_the_models_exercise_every_move() -> None:
    """Guard of the oracle: gaps that kept their length would prove nothing."""

    def changes(policy: str) -> set[str]:
        first = ROWS * list(POLICIES).index(policy)
        outputs = [each for name in MODELS for each in runs(name)[0][first : first + ROWS]]
        return {record.action for output in outputs for record in output.trace}

    for policy in ("dreamon", "cal", "cal by the suffix"):
        assert {"hold", "insert", "delete"} <= changes(policy), policy
    lengths = {output.usage.n_token for output in runs("balanced")[0]}
    assert len(lengths) > 5
    gave_up = [output for output in runs("balanced")[0] if output.finish_reason == "length"]
    assert gave_up and all(output.usage.nfe == 7 for output in gave_up)


@pytest.mark.parametrize("policy", POLICIES)
def test_with_a_refresh_in_every_step_the_cache_is_exact(policy: str) -> None:
    runner = ModelRunner(random_llada(**MODELS["balanced"]), WITH_EXPAND)
    exact = POLICIES[policy]
    without = decode(runner, requests_for([exact] * 3))
    every = exact.replaced(cache="window", cache_steps=1)
    cached = decode(runner, requests_for([every] * 3))
    assert [o.token_ids for o in without] == [o.token_ids for o in cached]
    assert runner.stores is not None and runner.stores.used == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_windows_are_used_and_a_row_is_the_same_in_any_company(policy: str) -> None:
    runner = ModelRunner(random_llada(**MODELS["balanced"]), WITH_EXPAND)
    small = {"cache": "window", "cache_window": 3}
    mixed = [POLICIES[policy].replaced(**small), POLICIES["fixed by τ"]] * 2
    together = decode(runner, requests_for(mixed))
    alone = decode(runner, requests_for(mixed), rows=1)
    assert [o.token_ids for o in together] == [o.token_ids for o in alone]
    cached = together[::2]
    assert any(o.usage.refreshes < o.usage.nfe for o in cached)
    assert all(o.usage.positions_evaluated <= o.usage.positions_exact for o in cached)


def test_guidance_masks_prompt_and_suffix() -> None:
    """Against the formula, on whole rows."""
    model = random_llada(seed=4, eos_share=0.3, sharpness=3.0)
    scale = 0.8
    [request] = requests_for([POLICIES["fixed by τ"].replaced(cfg_scale=scale)], seed=9)
    plain = logits_of(model)

    def guided(ids: Any, mask: Any, positions: Any) -> Any:
        masked = ids.clone()
        masked[:, : len(request.canvas.prompt)] = IDS.mask
        masked[:, -len(request.canvas.suffix) :] = IDS.mask
        own, without = plain(ids, mask, positions), plain(masked, mask, positions)
        return without + (scale + 1) * (own - without)

    rule = rule_of(POLICIES["fixed by τ"], expand=EXPAND)
    [row] = reference_decode(
        guided,
        [request.canvas.prompt.tolist()],
        [rule],
        IDS,
        suffixes=[request.canvas.suffix.tolist()],
    )
    [ours] = decode(ModelRunner(model, WITH_EXPAND), [request])
    assert ours.token_ids == row.canvas
    assert ours.usage.positions_evaluated == 2 * row.positions_evaluated


# -- several gaps ---------------------------------------------------------------------------------

MASK = SPECIAL.mask
#: Three gaps with text between them, and text behind the last.
CANVAS = [MASK] * 4 + [20, 21] + [MASK] * 3 + [22] + [MASK] * 2
GAPS = [0] * 4 + [-1] * 2 + [1] * 3 + [-1] + [2] * 2


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("suffix", [[], [23, 24, 25]])
def test_text_between_gaps_stays_and_every_gap_is_filled(
    model: str, policy: str, suffix: list[int]
) -> None:
    how = POLICIES[policy].replaced(initial_length=9, early_stop=False)
    request = request_for(
        "",
        [30, 31],
        how,
        canvas=CANVAS,
        gaps=GAPS,
        suffix=suffix,
        texts=("<", "|", "|", ">"),
        special=WITH_EXPAND,
    )
    [output] = decode(ModelRunner(random_llada(**MODELS[model]), WITH_EXPAND), [request])
    canvas = output.canvas_token_ids
    assert MASK not in canvas
    pairs = [at for at in range(len(canvas)) if canvas[at : at + 2] == [20, 21]]
    assert pairs and 22 in canvas[pairs[0] + 2 :]
    assert output.usage.n_token == len(canvas) - 3 <= how.max_new_tokens
    assert output.usage.prompt_tokens == 2 + 3 + len(suffix)
    if output.finish_reason == "stop" and suffix:
        assert output.text == "<" + "|".join(output.gaps) + ">"
        assert [int(n) for gap in output.gaps for n in gap.split()] == output.token_ids
        assert len(output.token_ids) == output.usage.n_token
    if policy == "fixed by τ":
        assert len(canvas) == len(CANVAS) and len(output.gaps) == 3
        if suffix:
            assert not set(output.token_ids) & set(IDS.ends)


@pytest.mark.parametrize("model", MODELS)
def test_a_fixed_template_is_what_the_reference_fills(model: str) -> None:
    net = random_llada(**MODELS[model])
    how = POLICIES["fixed by τ"]
    request = request_for(
        "",
        [30, 31],
        how,
        canvas=CANVAS,
        gaps=GAPS,
        suffix=[23, 24, SPECIAL.eos],
        special=WITH_EXPAND,
    )
    [ours] = decode(ModelRunner(net, WITH_EXPAND), [request])
    [theirs] = reference_decode(
        logits_of(net),
        [[30, 31]],
        [rule_of(how, expand=EXPAND)],
        IDS,
        suffixes=[request.canvas.suffix.tolist()],
        canvases=[CANVAS],
    )
    assert ours.canvas_token_ids == theirs.canvas


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
