"""The window cache: after any edits, without room, beside other rows, and in what is told of it.

That cached rows are what the naive cache gives is in test_against_reference.py.
"""

import random
from typing import Any

import numpy as np
import pytest

from rho_eos import (
    LLM,
    Append,
    Canvas,
    DecodeParams,
    Delete,
    Insert,
    Policy,
    Prediction,
    Step,
    Trim,
    Windowed,
    register_policy,
)
from rho_eos.base.outputs import Output
from rho_eos.engine.engine import Engine
from rho_eos.engine.request import Detail
from rho_eos.engine.runner import ModelRunner
from rho_eos.engine.store import BLOCK
from rho_eos.text.ask import Ask
from tests.reference.bridge import IDS, SPECIAL, rule_of
from tests.reference.cached import NaiveTransformer, window_decode
from tests.reference.cases import LIMITS, MODELS, engine_decode, some_prompts
from tests.reference.decoder import LOOPS, Cells, Ids, Loop, Rule, commit, masks
from tests.reference.random_llada import random_llada
from tests.requests import request as request_for

SMALL = {"cache": "window", "cache_window": 4, "cache_commits": 6, "cache_steps": 5}


def canvases(outputs: list[Output]) -> list[list[int]]:
    return [output.canvas_token_ids for output in outputs]


def any_edit(seed: int, step: int, length: int, masked: list[int]) -> tuple[str, Any]:
    """What becomes of a canvas of this length, of which these MASKs are left."""
    chance = random.Random(f"{seed} {step}")
    kind = chance.choice(["append", "trim", "insert", "delete", "nothing"])
    if kind == "append" and length < 30:
        return kind, chance.randint(1, 5)
    if kind == "trim" and masked[-1:] == [length - 1]:
        return kind, 1
    if kind == "insert" and length < 30:
        return kind, (chance.randint(0, length), chance.randint(1, 3))
    if kind == "delete" and masked:
        return kind, sorted(chance.sample(masked, min(len(masked), 2)))
    return "nothing", None


class Edits(Windowed, Policy):
    """Makes arbitrary edits: what must not confuse the cache."""

    name = "edits"
    edits = (Append, Trim, Insert, Delete)

    def step(self, canvas: Canvas, prediction: Prediction, commit: np.ndarray) -> Step:
        left = canvas.masked[1:].tolist()
        kind, how = any_edit(self.params.seed, canvas.step, canvas.length, left)
        made = {
            "append": lambda: (Append(how),),
            "trim": lambda: (Trim(how),),
            "insert": lambda: (Insert(*how),),
            "delete": lambda: (Delete(np.array(how)),),
            "nothing": tuple,
        }
        return Step(made[kind]())


def naive_edits(seed: int) -> Any:
    """The same edits of a list."""

    def loop(canvas: Cells, rule: Rule, ids: Ids) -> Loop:
        while ids.mask in canvas:
            guesses = yield
            kind, how = any_edit(seed, canvas.step, len(canvas), masks(canvas, ids)[1:])
            commit(canvas, guesses, rule, ids)
            if kind == "append":
                canvas += [ids.mask] * how
            elif kind == "trim":
                del canvas[-how:]
            elif kind == "insert":
                canvas[how[0] : how[0]] = [ids.mask] * how[1]
            elif kind == "delete":
                for at in reversed(how):
                    del canvas[at]

    return loop


@pytest.mark.parametrize("seed", range(12))
def test_after_any_edits_a_cached_row_is_what_the_naive_cache_gives(
    seed: int, own_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where keys and values did not follow the cells, other tokens would be predicted."""
    register_policy(Edits)
    monkeypatch.setitem(LOOPS, "edits", naive_edits(seed))
    model = random_llada(**MODELS["mostly text, unsure"])
    from_the_left = {"threshold": 1.0, "tie": 1.0, "block_length": None}
    params = DecodeParams(
        policy="edits",
        seed=seed,
        initial_length=12,
        max_new_tokens=40,
        early_stop=False,
        trace=True,
        **(SMALL | from_the_left),
    )
    prompt = [7, 8, 9, 10, 11]
    [ours] = engine_decode(model, [prompt], [params])
    theirs = window_decode(NaiveTransformer(model), prompt, rule_of(params), IDS)
    assert ours.canvas_token_ids == theirs.canvas
    assert ours.usage.nfe == theirs.nfe
    assert ours.usage.positions_evaluated == theirs.positions_evaluated
    assert ours.usage.refreshes == theirs.refreshes < theirs.nfe
    assert len({record.length for record in ours.trace}) > 1


def test_a_row_that_finds_no_room_runs_exact_and_is_counted() -> None:
    model = random_llada(**MODELS["balanced"])
    prompts = some_prompts(6, seed=4)
    exact = DecodeParams(early_stop=False, **LIMITS)
    window = exact.replaced(**SMALL)
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
    how = {**LIMITS, "initial_length": 48, **SMALL}
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


def test_a_stream_shows_no_mask_and_says_which_steps_were_windows() -> None:
    model = random_llada(**MODELS["mostly text, unsure"])
    how = {**LIMITS, "initial_length": 48, **SMALL}
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
