"""The window cache: against a naive one, against exact decoding, alone and in any company."""

import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rho_eos import (
    LLM,
    Append,
    Canvas,
    CommitRule,
    DecodeParams,
    Delete,
    Insert,
    Policy,
    Prediction,
    Step,
    Trim,
    Windowed,
)
from rho_eos.base.outputs import Output
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.registry import policies, register_policy
from rho_eos.engine.engine import Engine
from rho_eos.engine.request import Detail
from rho_eos.engine.runner import ModelRunner
from rho_eos.engine.store import BLOCK
from rho_eos.text.ask import Ask
from tests.conftest import DATA, golden_parameters
from tests.reference.bridge import IDS, SPECIAL, rule_of
from tests.reference.cached import CacheRule, NaiveTransformer, window_decode
from tests.reference.cases import LIMITS, MODELS, engine_decode, some_prompts
from tests.reference.decoder import returned_tokens
from tests.reference.random_llada import random_llada
from tests.requests import request as request_for

EVERY_STEP = {"cache": "window", "cache_steps": 1}


def canvases(outputs: list[Output]) -> list[list[int]]:
    return [output.canvas_token_ids for output in outputs]


SETTINGS = {
    "defaults": {},
    "small": {"cache_window": 4, "cache_commits": 6, "cache_steps": 5},
    "long": {"cache_window": 6, "cache_steps": 9, "cache_commits": 40},
    "unsure": {"cache_window": 8, "cache_unsure": 0.5, "cache_steps": 20},
}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", MODELS)
def test_a_cached_row_is_what_the_naive_cache_gives(name: str, settings: str) -> None:
    model = random_llada(**MODELS[name])
    net = NaiveTransformer(model)
    prompts = some_prompts(5, seed=3)
    how = {"cache": "window", "threshold": 0.6, "early_stop": False, **LIMITS, **SETTINGS[settings]}
    params = [
        DecodeParams(policy="fixed", **how),
        DecodeParams(**how),
        DecodeParams(preset="sym", expansion="linear", **(how | {"block_length": None})),
        DecodeParams(**(how | {"early_stop": True})),
        DecodeParams(**(how | {"horizon": 4})),  # decisions, not forwards
    ]
    runner = ModelRunner(model, SPECIAL)
    for prompt, own, ours in zip(
        prompts, params, engine_decode(runner, prompts, params), strict=True
    ):
        rule = CacheRule(own.cache_window, own.cache_commits, own.cache_steps, own.cache_unsure)
        theirs = window_decode(net, prompt, rule_of(own), IDS, rule)
        assert ours.token_ids == returned_tokens(theirs.canvas, IDS)
        if not own.early_stop:
            assert ours.canvas_token_ids == theirs.canvas
        assert ours.usage.nfe == theirs.nfe
        assert ours.usage.positions_evaluated == theirs.positions_evaluated
        assert ours.usage.refreshes == theirs.refreshes
    assert runner.stores is not None and runner.stores.used == 0, (
        "nothing is kept of rows that left"
    )


def test_the_comparison_is_about_windows() -> None:
    """Guard of the oracle: rows that refreshed in every step would prove nothing."""
    model = random_llada(**MODELS["mostly text, unsure"])
    params = DecodeParams(cache="window", early_stop=False, **LIMITS | SETTINGS["small"])
    usage = engine_decode(ModelRunner(model, SPECIAL), some_prompts(1), [params])[0].usage
    assert usage.refreshes < usage.nfe / 2
    assert usage.positions_evaluated < 0.7 * usage.positions_exact


EVERYONE = [name for name in policies() if name not in ("cal", "dreamon")]  # which fill gaps


@pytest.mark.parametrize("policy", EVERYONE)
def test_with_a_refresh_in_every_step_it_is_exact(policy: str) -> None:
    exact = DecodeParams(policy=policy, early_stop=False, **LIMITS)
    more = {"ahead": 0, "margin": 8, "look": 160} if policy == "scout" else {}
    exact = exact.replaced(**more)
    model = random_llada(**MODELS["balanced"])
    prompts = some_prompts(4, seed=1)
    cached = exact.replaced(**EVERY_STEP)
    runner = ModelRunner(model, SPECIAL)
    without = engine_decode(runner, prompts, [exact] * 4)
    kept = engine_decode(runner, prompts, [cached] * 4)
    assert canvases(without) == canvases(kept)
    assert [o.usage.positions_evaluated for o in without] == [
        o.usage.positions_evaluated for o in kept
    ]


@pytest.mark.parametrize("more", [{"cfg_scale": 1.5}, {"temperature": 0.8, "seed": 5}])
def test_guidance_and_seeds_go_with_it(more: dict[str, Any]) -> None:
    model = random_llada(**MODELS["balanced"])
    prompts = some_prompts(3, seed=2)
    exact = DecodeParams(early_stop=False, **LIMITS, **more)
    runner = ModelRunner(model, SPECIAL)
    every = exact.replaced(**EVERY_STEP)
    assert canvases(engine_decode(runner, prompts, [exact] * 3)) == canvases(
        engine_decode(runner, prompts, [every] * 3)
    )
    window = exact.replaced(cache="window", cache_window=4)
    together = engine_decode(runner, prompts, [window] * 3)
    assert canvases(together) == canvases(engine_decode(runner, prompts, [window] * 3, rows=1))
    assert any(o.usage.refreshes < o.usage.nfe for o in together)


def test_dream_reads_one_to_the_left_within_the_window(parity_model: Any) -> None:
    """A window that lacked the position before its first MASK could not be read at all."""
    model = parity_model("dream")
    prompts = some_prompts(4, vocabulary=160)
    limits = {"initial_length": 24, "max_new_tokens": 40, "block_length": 8, "early_stop": False}
    exact = DecodeParams(**limits)
    runner = ModelRunner(model, SPECIAL)
    every = exact.replaced(**EVERY_STEP)
    assert canvases(engine_decode(runner, prompts, [exact] * 4)) == canvases(
        engine_decode(runner, prompts, [every] * 4)
    )
    window = exact.replaced(cache="window", cache_window=3)
    outputs = engine_decode(runner, prompts, [window] * 4)
    assert any(output.usage.refreshes < output.usage.nfe for output in outputs)


def test_a_row_is_the_same_alone_and_in_any_company() -> None:
    model = random_llada(**MODELS["balanced"])
    prompts = some_prompts(14, seed=8)
    small = {"cache": "window", **SETTINGS["small"]}
    kinds = [
        *(DecodeParams(policy=name, **LIMITS, **small) for name in EVERYONE),
        DecodeParams(temperature=0.7, seed=11, **LIMITS, **small),
        DecodeParams(cfg_scale=1.5, **LIMITS, **small),
        DecodeParams(**LIMITS),  # exact rows among them
    ]
    params = [kinds[index % len(kinds)] for index in range(len(prompts))]
    runner = ModelRunner(model, SPECIAL)
    alone = canvases(engine_decode(runner, prompts, params, rows=1))
    for rows in (3, 8, 32):
        order = list(range(len(prompts)))
        random.Random(rows).shuffle(order)
        shuffled = engine_decode(
            runner, [prompts[i] for i in order], [params[i] for i in order], rows=rows
        )
        assert canvases(shuffled) == [alone[i] for i in order]


class Leftmost(CommitRule):
    """Commits the first MASK."""

    name = "leftmost"

    def __call__(self, canvas: Canvas, candidates: Prediction) -> np.ndarray:
        return candidates.positions[:1]


class Edits(Windowed, Policy):
    """Makes arbitrary edits: what must not confuse the cache."""

    name = "edits"
    edits = (Append, Trim, Insert, Delete)
    rule = Leftmost

    def step(self, canvas: Canvas, prediction: Prediction, commit: np.ndarray) -> Step:
        chance = random.Random(f"{self.params.seed} {canvas.step}")
        masks = canvas.masked[1:].tolist()
        kind = chance.choice(["append", "trim", "insert", "delete", "nothing"])
        edit: Any = None
        if kind == "append" and canvas.length < 30:
            edit = Append(chance.randint(1, 5))
        if kind == "trim" and masks and masks[-1] == canvas.length - 1:
            edit = Trim(1)
        if kind == "insert" and canvas.length < 30:
            edit = Insert(chance.randint(0, canvas.length), chance.randint(1, 3))
        if kind == "delete" and masks:
            edit = Delete(np.array(sorted(chance.sample(masks, min(len(masks), 2)))))
        return Step(() if edit is None else (edit,))


@pytest.fixture
def with_edits(own_parts: None) -> None:
    register_policy(Edits)


@pytest.mark.usefixtures("with_edits")
@pytest.mark.parametrize("seed", range(12))
def test_after_any_edits_what_is_kept_is_what_a_list_of_positions_keeps(seed: int) -> None:
    """The naive cache makes the same edit of a list of canvas positions and of what it keeps."""
    model = random_llada(**MODELS["mostly text, unsure"])
    net = NaiveTransformer(model)
    params = DecodeParams(
        policy="edits",
        seed=seed,
        initial_length=12,
        max_new_tokens=40,
        early_stop=False,
        cache="window",
        block_length=None,
        cache_window=4,
        cache_commits=7,
        cache_steps=4,
    )
    runner = ModelRunner(model, SPECIAL)
    snapshots: list[torch.Tensor] = []
    engine = Engine(runner, SPECIAL, lambda ids: "")

    def note(row: Any, _: Any) -> None:
        store = runner.stores._stores[(row, 0)]  # type: ignore[union-attr]
        snapshots.append(store.kept[:, :, :, : store.length].clone())

    engine.observe = note
    prompt = [7, 8, 9, 10, 11]
    output = engine.finish([engine.submit(request_for("", prompt, params))])[0]
    kept, nfe, positions = naive_edits(net, prompt, params)
    assert output.usage.nfe == nfe == len(snapshots)
    assert output.usage.positions_evaluated == positions
    assert len({len(kept_then) for kept_then in kept}) > 1, "the length changed"
    for ours, theirs in zip(snapshots, kept, strict=True):
        keys = torch.stack([torch.stack([layer[0] for layer in entry]) for entry in theirs])
        values = torch.stack([torch.stack([layer[1] for layer in entry]) for entry in theirs])
        torch.testing.assert_close(ours[:, 0], keys.permute(1, 2, 0, 3), rtol=0, atol=1e-4)
        torch.testing.assert_close(ours[:, 1], values.permute(1, 2, 0, 3), rtol=0, atol=1e-4)


def naive_edits(
    net: NaiveTransformer, prompt: list[int], params: DecodeParams
) -> tuple[list[list[Any]], int, int]:
    """The same policy on a list: what is kept for each position after every forward."""
    mask, ends = SPECIAL.mask, SPECIAL.ends
    canvas = [mask] * params.initial_length
    kept: list[Any] = [net.nothing() for _ in range(len(prompt) + len(canvas))]
    old = [False] * len(canvas)  # written since it was computed
    policy = Edits(params, SPECIAL)
    seen: list[list[Any]] = []
    refresh, sees_end, commits, steps, positions, before = True, False, 0, 0, 0, -1
    while mask in canvas:
        start, total = len(prompt), len(prompt) + len(canvas)
        masked = [at for at, token in enumerate(canvas) if token == mask]
        last = masked[: params.cache_window][-1]
        compute = list(range(total))
        if not (refresh or (last == len(canvas) - 1 and not sees_end)):
            window = range(start + masked[0] - 1, start + last + 1)
            moves_on = masked[0] != before
            before = masked[0]
            compute = [
                at
                for at in compute
                if at in window
                or kept[at][0] is None
                or (at >= start and moves_on and old[at - start])
            ]
        full = len(compute) == total
        logits = net([*prompt, *canvas], compute, kept).clone()
        seen.append([list(entry) for entry in kept])
        positions += len(compute)
        logits[:, mask] = -torch.inf
        tokens = dict(zip(compute, logits.argmax(-1).tolist(), strict=True))
        inside = [at for at in masked if start + at in tokens]
        view = replace(Canvas.of(SPECIAL, prompt, canvas), step=len(seen) - 1)
        old = [each and start + at not in compute for at, each in enumerate(old)]
        if full:
            refresh, commits, steps = False, 0, 0
        token = tokens[start + inside[0]]
        ended = token in ends or bool(set(canvas) & set(ends))
        if not full and len(masked) == 1 and not ended:
            refresh = True
        else:
            canvas[inside[0]], old[inside[0]] = token, True
            commits += 1
        steps += 1
        refresh = refresh or commits >= params.cache_commits or steps >= params.cache_steps
        if full:
            for edit in policy.step(view, None, None).edits:  # type: ignore[arg-type]
                tail = kept[start:]
                if isinstance(edit, Append):
                    canvas += [mask] * edit.count
                    tail += [net.nothing() for _ in range(edit.count)]
                    old += [False] * edit.count
                elif isinstance(edit, Trim):
                    del canvas[-edit.count :], tail[-edit.count :], old[-edit.count :]
                elif isinstance(edit, Insert):
                    refresh = refresh or edit.at < len(canvas)
                    canvas[edit.at : edit.at] = [mask] * edit.count
                    tail[edit.at : edit.at] = [net.nothing() for _ in range(edit.count)]
                    old[edit.at : edit.at] = [False] * edit.count
                else:
                    behind = range(len(canvas) - len(edit.positions), len(canvas))
                    refresh = refresh or list(edit.positions) != list(behind)
                    for at in reversed(edit.positions):
                        del canvas[at], tail[at], old[at]
                kept[start:] = tail
        predicted = any(tokens[start + at] in ends for at in inside)
        sees_end = predicted or bool(set(canvas) & set(ends))
    return seen, len(seen), positions


def test_a_row_that_finds_no_room_runs_exact_and_is_counted() -> None:
    model = random_llada(**MODELS["balanced"])
    prompts = some_prompts(6, seed=4)
    exact = DecodeParams(early_stop=False, **LIMITS)
    window = exact.replaced(cache="window", **SETTINGS["small"])
    runner = ModelRunner(model, SPECIAL, cache_megabytes=1)
    assert runner.stores is not None
    runner.stores.limit = 2 * BLOCK  # room for two rows
    outputs = engine_decode(runner, prompts, [window] * 6)
    without = engine_decode(runner, prompts, [exact] * 6)
    cached = engine_decode(ModelRunner(model, SPECIAL), prompts, [window] * 6)
    ran_exact = [output.usage.refreshes == output.usage.nfe for output in outputs]
    assert 0 < sum(ran_exact) < 6 and runner.stores.refused >= sum(ran_exact)
    for output, alone, kept, refused in zip(outputs, without, cached, ran_exact, strict=True):
        expected = alone if refused else kept
        assert output.canvas_token_ids == expected.canvas_token_ids
    assert runner.stores.used == 0


def test_refreshes_are_counted_right_where_a_row_loses_its_cache_on_the_way() -> None:
    model = random_llada(**MODELS["mostly text, unsure"])
    how = {**LIMITS, "initial_length": 48, "cache": "window", **SETTINGS["small"]}
    params = DecodeParams(policy="fixed", early_stop=False, trace=True, **how)
    runner = ModelRunner(model, SPECIAL)
    predict = runner.predict

    def without_room(rows: Any) -> Any:
        for row in rows:
            if row.canvas.step == 9:
                row.without_cache()
        return predict(rows)

    runner.predict = without_room  # type: ignore[method-assign]
    [output] = engine_decode(runner, some_prompts(1, seed=4), [params])
    refreshes = [record.refresh for record in output.trace]
    assert not all(refreshes[:9]) and all(refreshes[9:]) and len(refreshes) > 9
    assert output.usage.refreshes == sum(refreshes)
    assert output.usage.positions_exact == sum(record.exact for record in output.trace)


def test_the_published_traces_with_a_refresh_in_every_step(golden_model: Any) -> None:
    special = SpecialTokens(mask=3, eos=2)
    lines = (DATA / "golden" / "traces.jsonl").read_text().splitlines()[::16]  # of every kind
    traces = [json.loads(line) for line in lines]
    params = [
        DecodeParams.from_mapping({"early_stop": False, **EVERY_STEP, **golden_parameters(trace)})
        for trace in traces
    ]
    runner = ModelRunner(golden_model, special)
    outputs = engine_decode(
        runner, [t["prompt_token_ids"] for t in traces], params, special=special
    )
    assert canvases(outputs) == [trace["canvas_token_ids"] for trace in traces]


def test_a_stream_shows_no_mask_and_says_which_steps_were_windows() -> None:
    model = random_llada(**MODELS["mostly text, unsure"])
    how = {**LIMITS, "initial_length": 48, "cache": "window", **SETTINGS["small"]}
    params = DecodeParams(policy="fixed", early_stop=False, **how)
    engine = Engine(ModelRunner(model, SPECIAL), SPECIAL, lambda ids: "")
    handle = engine.submit(request_for("", [7, 8, 9], params), Detail.STEPS)
    events = list(engine.follow(handle))
    assert all(SPECIAL.mask not in event.draft_ids for event in events)
    windows = [event.record for event in events if not event.record.refresh]
    assert windows and all(record.rho is None for record in windows)
    assert all(record.computed < 3 + record.length for record in windows)
    assert sum(event.record.computed for event in events) == (
        handle.result().usage.positions_evaluated
    )


def test_refreshes_of_different_rows_are_spread_over_steps() -> None:
    model = random_llada(**MODELS["mostly text, unsure"])
    prompts = some_prompts(8, seed=6)
    how = {**LIMITS, "cache": "window", "cache_window": 4, "early_stop": False}
    params = DecodeParams(policy="fixed", **how)
    runner = ModelRunner(model, SPECIAL)
    refreshes: list[int] = []
    predict = runner.predict

    def counted(rows: Any) -> Any:
        refreshes.append(sum(row.refreshes_next for row in rows))
        return predict(rows)

    runner.predict = counted  # type: ignore[method-assign]
    outputs = engine_decode(runner, prompts, [params] * 8)
    assert max(refreshes[1:]) <= 2, "all begin at once; then at most a quarter of them"
    alone = [engine_decode(ModelRunner(model, SPECIAL), [p], [params])[0] for p in prompts]
    assert canvases(outputs) == canvases(alone)
    assert [o.usage.nfe for o in outputs] == [o.usage.nfe for o in alone], "waiting is no step"


def test_a_process_may_set_the_cache_for_requests_that_do_not_say(byte_checkpoint: Any) -> None:
    llm = LLM(str(byte_checkpoint), defaults={"cache": "window", "cache_window": 5})
    [unsaid] = [each.params for each in llm.preparer.prepare(Ask("hello"))]
    usual = DecodeParams(cache="window").cache_steps
    assert (unsaid.cache, unsaid.cache_window, unsaid.cache_steps) == ("window", 5, usual)
    own = DecodeParams(cache="none")
    [said] = [each.params for each in llm.preparer.prepare(Ask("hello", own))]
    assert said.cache == "none"
    long = DecodeParams(initial_length=96, max_new_tokens=96, policy="fixed")
    usage = llm.generate(["hello"], long)[0].usage
    assert usage.positions_evaluated < usage.positions_exact
