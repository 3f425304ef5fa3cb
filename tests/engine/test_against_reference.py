"""The engine against the naive decoders: the same tokens at the same cost, whatever is asked for.

Policies, commit rules, caches and parameters are drawn from their declarations, and rows that have
nothing to do with each other share a batch.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from rho_eos.base.outputs import FinishReason, Output
from rho_eos.base.plugins import load_plugin
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.policy import Infills, Windowed
from rho_eos.decoding.registry import find_policy
from rho_eos.engine.engine import Engine
from rho_eos.engine.runner import ModelRunner
from rho_eos.llm import LLM
from rho_eos.text.ask import Ask
from rho_problems import TASKS
from tests.attack import times
from tests.drawn import RULES, SETTLED, any_parameters, combinations
from tests.reference.bridge import IDS, SPECIAL, guided, logits_of, rule_of
from tests.reference.cached import Cached, NaiveTransformer, window_decode
from tests.reference.cases import LIMITS, MODELS, engine_decode, some_prompts
from tests.reference.decoder import Ids, Result, decode, returned_tokens
from tests.reference.random_llada import random_llada
from tests.requests import request as request_for

EXPAND = 12  # a token that the random models like
WITH_EXPAND = SpecialTokens(SPECIAL.mask, SPECIAL.eos, SPECIAL.end_of_turn, EXPAND)
#: What the reference does not know; it has tests of its own.
ELSEWHERE = ("temperature", "top_k", "top_p", "seed", "stop", "logprobs", "context")
ELSEWHERE += ("min_new_tokens", "stop_token_ids")


@dataclass(frozen=True)
class Case:
    """A request as lists of ids."""

    prompt: list[int]
    params: DecodeParams
    suffix: list[int]
    canvas: list[int] | None = None  # of a template; else it starts as MASKs

    @property
    def cached(self) -> bool:
        """Whether some of its steps may compute a window."""
        windowed = issubclass(find_policy(self.params.policy), Windowed)
        return self.params.cache != "none" and windowed


@st.composite
def cases(draw: st.DrawFn, policy: str, rule: str) -> Case:
    params = draw(any_parameters([policy], [rule], ("none", "window"), ELSEWHERE, longest=64))
    # Much guidance makes much of what two ways to add up numbers do not agree in.
    changes: dict[str, Any] = {"trace": True, "cfg_scale": min(2.0, params.cfg_scale)}
    if params.commit == "klass":  # no two ways to add up a distribution agree to the last bit
        changes["stability"] = max(1e-4, params.model_dump()["stability"])
    prompt, behind = some_prompts(2, draw(st.integers(0, 999)))
    fills = issubclass(find_policy(params.policy), Infills)
    suffix = (
        [*behind, IDS.eos] if fills and (params.policy != "fixed" or draw(st.booleans())) else []
    )
    canvas = None
    if params.policy == "fixed" and suffix and draw(st.booleans()):
        given = st.sampled_from([IDS.mask, IDS.mask, 20, IDS.eos])
        canvas = [*draw(st.lists(given, max_size=30)), 21, IDS.mask]
        changes["initial_length"] = changes["max_new_tokens"] = len(canvas)
        changes |= {"steps": None} if params.commit == "quota" else {}
    case = Case(prompt, params, suffix, canvas)
    if case.cached:  # the naive cache keeps a single row, and nothing behind its canvas
        changes |= {"cfg_scale": 0.0} | ({"cache_steps": 1} if suffix else {})
    return replace(case, params=params.replaced(**changes))


@cache
def models(name: str) -> tuple[Any, Any, NaiveTransformer]:
    model = random_llada(**MODELS[name])
    return model, logits_of(model), NaiveTransformer(model)


def ours(name: str, batch: Sequence[Case]) -> list[Output]:
    engine = Engine(ModelRunner(models(name)[0], WITH_EXPAND), WITH_EXPAND, lambda ids: "")
    handles = []
    for case in batch:
        more = {"suffix": case.suffix, "special": WITH_EXPAND, "canvas": case.canvas}
        if case.canvas is not None:
            gap = np.cumsum(np.array(case.canvas) != IDS.mask)
            more["gaps"] = np.where(np.array(case.canvas) == IDS.mask, gap, -1)
        handles.append(engine.submit(request_for("", case.prompt, case.params, **more)))
    return engine.finish(handles)


def theirs(name: str, case: Case) -> Result:
    _, logits, net = models(name)
    params, rule = case.params, rule_of(case.params, expand=EXPAND)
    if case.cached and not case.suffix:
        return window_decode(net, case.prompt, rule, IDS)
    if params.cfg_scale:
        logits = guided(logits, len(case.prompt), len(case.suffix), params.cfg_scale)
    canvases = None if case.canvas is None else [case.canvas]
    [row] = decode(logits, [case.prompt], [rule], IDS, 1, [case.suffix], canvases)
    return row


def compare(case: Case, output: Output, row: Result) -> None:
    params, usage = case.params, output.usage
    if case.suffix:
        assert output.finish_reason is (
            FinishReason.LENGTH if IDS.mask in row.canvas else FinishReason.STOP
        )
        if case.canvas is None:
            assert output.token_ids == [token for token in row.canvas if token != IDS.mask]
    else:
        assert output.token_ids == returned_tokens(row.canvas, IDS)
    if case.canvas or not (params.early_stop or case.suffix):
        assert output.canvas_token_ids == row.canvas
    if params.policy == "cal":  # which tries several lengths in one forward
        assert usage.nfe <= row.nfe
        return
    assert usage.nfe == row.nfe
    assert usage.positions_evaluated == row.positions_evaluated * (1 + (params.cfg_scale > 0))
    if isinstance(row, Cached):
        assert usage.refreshes == row.refreshes
    else:
        assert [record.rho for record in output.trace] == row.densities


def moves(case: Case, output: Output) -> set[str]:
    """What the comparison was about."""
    policy, trace = case.params.policy, output.trace
    seen = {case.params.commit} | {f"{policy} {record.action}" for record in trace}
    if policy == "fixed" and any(record.written for record in trace):
        seen.add("fixed taken back")
    if not all(record.refresh for record in trace):
        seen.add(f"{policy} in a window")
    return seen


def test_every_way_to_decode_is_what_the_naive_decoder_does() -> None:
    """All combinations, three in a batch."""
    seen: Counter[str] = Counter()

    @seed(0)  # where two candidates are as good as equal, either may be chosen
    @settings(
        max_examples=times(6, 400),
        database=None,
        phases=[Phase.generate],  # to shrink what fails would take longer than to read it
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data(), name=st.sampled_from(sorted(MODELS)))
    def check(ways: list[tuple[str, str]], data: st.DataObject, name: str) -> None:
        batch = [data.draw(cases(*way)) for way in ways]
        for case, output in zip(batch, ours(name, batch), strict=True):
            compare(case, output, theirs(name, case))
            seen.update(moves(case, output))

    # tests/reference/blocks.py knows the others.
    every = [way for way in combinations(WITH_EXPAND) if way[1] in SETTLED]
    every += [("dreamon", RULES[0])] * 5
    every.remove(("cal", "klass"))  # its cells remember the search, which is made by probes here
    every.remove(("blocks", "wino"))  # a block that is reopened while it is filled counts as full
    for first in range(0, len(every), 3):
        check(every[first : first + 3])
    exercised = set(SETTLED)
    exercised |= {f"{name} expand" for name in ("rho-eos", "daedal", "blocks", "scout")}
    exercised |= {f"{name} {way}" for name in ("cal", "dreamon") for way in ("insert", "delete")}
    exercised |= {f"{name} in a window" for name in ("rho-eos", "daedal", "fixed", "scout")}
    assert exercised <= set(seen), "the oracle was not asked about everything"


#: What is drawn too rarely, and what it is about.
RARE: dict[str, dict[str, Any]] = {
    "rho-eos contract": {},
    "daedal insert": {"rho_low": 0.0},
    "released expand": {},
    "released contract": {"initial_length": 40},
    "scout contract": {"look": 160, "ahead": 8, "trust": 0, "max_new_tokens": 160},
    "scout expand": {"look": 160, "margin": 4, "tie": 0.3, "trust": 1.0, "max_new_tokens": 200},
    "quantile contract": {"look": 160, "risk": 0.5, "max_new_tokens": 160},
    "quantile expand": {"look": 40, "risk": 0.05, "room": 0.0, "max_new_tokens": 200},
    "fixed taken back": {"commit": "wino", "draft": 0.3, "verify": 0.6, "initial_length": 40},
    "frontier expand": {"max_new_tokens": 160},
    "frontier contract": {"initial_length": 120, "max_new_tokens": 160},
    "landing expand": {"max_new_tokens": 160},
    "landing contract": {"initial_length": 120, "max_new_tokens": 160},
}


@pytest.mark.parametrize("cache", ["none", "window"])
@pytest.mark.parametrize("move", RARE)
def test_moves_that_are_drawn_rarely(move: str, cache: str, own_parts: None) -> None:
    policy = move.partition(" ")[0]
    if policy in ("frontier", "landing"):
        load_plugin(str(Path(__file__).parents[2] / "examples" / f"{policy}.py"))
    how = LIMITS | RARE[move] | {"policy": policy, "cache": cache, "trace": True}
    batch = [
        Case(prompt, DecodeParams(**how, early_stop=False), [])
        for prompt in some_prompts(5, seed=5)
    ]
    seen: set[str] = set()
    for name in MODELS:
        for case, output in zip(batch, ours(name, batch), strict=True):
            compare(case, output, theirs(name, case))
            seen |= moves(case, output)
    assert move in seen or cache != "none"  # windows leave the policy fewer steps


def test_an_end_that_comes_early_is_doubted_alike() -> None:
    """Long enough canvases, written from left to right, so that no end is committed at first."""
    how = DecodeParams(
        policy="scout",
        look=160,
        trust=0.05,
        tie=1.0,
        threshold=1.0,
        margin=2,
        trace=True,
        early_stop=False,
        **(LIMITS | {"max_new_tokens": 120}),
    )
    model, prompts = random_llada(seed=6, eos_share=0.15, sharpness=2.0), some_prompts(12, seed=6)
    outputs = engine_decode(model, prompts, [how] * 12)
    rows = decode(logits_of(model), prompts, [rule_of(how)] * 12, IDS, 12)
    for output, prompt, row in zip(outputs, prompts, rows, strict=True):
        compare(Case(prompt, how, []), output, row)
    doubts = [
        any(first.committed and not second.committed for first, second in pairwise(output.trace))
        for output in outputs
    ]
    assert sum(doubts) >= 3


def test_dream_is_read_one_position_to_the_left(parity_model: Any) -> None:
    model = parity_model("dream")
    prompts = some_prompts(6, vocabulary=160)
    limits = {"initial_length": 12, "max_new_tokens": 40, "block_length": 8, "early_stop": False}
    exact = [DecodeParams(policy=name, **limits) for name in ("rho-eos", "fixed", "daedal")]
    rules = [rule_of(how) for how in exact] * 2
    shifted = decode(logits_of(model, shift=1), prompts, rules, IDS, batch_size=6)
    straight = decode(logits_of(model), prompts, rules, IDS, batch_size=6)
    assert [row.canvas for row in straight] != [row.canvas for row in shifted]
    runner = ModelRunner(model, SPECIAL)
    for more in ({}, {"cache": "window", "cache_steps": 1}):
        outputs = engine_decode(runner, prompts, [how.replaced(**more) for how in exact] * 2)
        assert [output.canvas_token_ids for output in outputs] == [row.canvas for row in shifted]
    window = {"cache": "window", "cache_window": 3}
    outputs = engine_decode(runner, prompts, [how.replaced(**window) for how in exact] * 2)
    assert any(output.usage.refreshes < output.usage.nfe for output in outputs)


def test_room_for_a_model_that_compresses_is_kept_alike() -> None:
    """What random models do not do: other words on a short canvas, and an end far from a long
    one's."""
    llm = LLM("terse")
    special = llm.special
    how = DecodeParams(policy="scout", max_new_tokens=600, early_stop=False, trace=True)
    problems = [TASKS[task].problem(seed).prompt for task in TASKS for seed in (430, 431)]
    requests = [llm.preparer.prepare(Ask(prompt, how))[0] for prompt in problems]
    prompts = [request.canvas.prompt.tolist() for request in requests]
    ids = Ids(mask=special.mask, eos=special.eos, ends=special.ends)
    rules = [rule_of(request.params) for request in requests]
    outputs = llm.generate(problems, how)
    for output, row in zip(
        outputs, decode(logits_of(llm.model), prompts, rules, ids, 8), strict=True
    ):
        assert output.canvas_token_ids == row.canvas
        assert output.usage.positions_evaluated == row.positions_evaluated
    wide = [output for output in outputs if output.trace[-1].length >= 1.4 * output.usage.e_token]
    assert len(wide) >= 4
    assert all("contract" in {record.action for record in output.trace} for output in wide)
