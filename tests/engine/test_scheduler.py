"""Who runs when: admission, growth beyond the budget, leaving and cancelling."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rho_eos.base.outputs import FinishReason
from rho_eos.decoding.params import DecodeParams
from tests.scripted import (
    MASK,
    ScriptedRunner,
    arbitrary,
    encode,
    engine_of,
    run_all,
    run_one,
    says,
)


def fixed(length: int, steps: int) -> DecodeParams:
    return DecodeParams(policy="fixed", initial_length=length, steps=steps, early_stop=False)


def growing(limit: int = 64) -> DecodeParams:
    """Adds 8 MASKs in each of its first steps when the model never says EOS."""
    return DecodeParams(initial_length=8, max_new_tokens=limit, expansion="constant")


def test_rows_per_forward_are_limited_and_first_come_is_first_served() -> None:
    runner = ScriptedRunner(says("hello"))
    engine = engine_of(runner, max_rows=2)
    for id in "abcde":
        engine.add(id, encode("?"), fixed(4, 2))
    run_all(engine)
    assert runner.batches == [["a", "b"]] * 2 + [["c", "d"]] * 2 + [["e"]] * 2


def test_positions_are_limited_and_guidance_costs_a_second_row() -> None:
    runner = ScriptedRunner(says("hello"))
    engine = engine_of(runner, max_positions=100)
    guided = DecodeParams(policy="fixed", initial_length=20, steps=1, cfg_scale=1.0)
    engine.add("a", encode("0123456789"), guided)
    engine.add("b", encode("0123456789"), fixed(20, 1))
    engine.add("c", encode("0123456789"), fixed(20, 1))
    run_all(engine)
    assert runner.batches == [["a", "b"], ["c"]]
    assert runner.positions == [90, 30]


def test_a_finished_row_leaves_at_once_and_a_waiting_one_joins_in_the_next_step() -> None:
    runner = ScriptedRunner(says("hello"))
    engine = engine_of(runner, max_rows=2)
    engine.add("short", encode("?"), fixed(4, 1))
    engine.add("long", encode("?"), fixed(4, 4))
    engine.add("next", encode("?"), fixed(4, 2))
    engine.add("last", encode("?"), fixed(4, 1))
    run_all(engine)
    assert runner.batches == [
        ["short", "long"],
        ["long", "next"],
        ["long", "next"],
        ["long", "last"],
    ]


def test_when_canvases_outgrow_the_budget_the_youngest_wait() -> None:
    runner = ScriptedRunner(arbitrary(seed=1, eos_shares=[0.0], sure=0.0))
    engine = engine_of(runner, max_positions=60)
    for id in "abc":
        engine.add(id, encode("?"), growing())
    outputs = run_all(engine)
    assert set(outputs) == {"a", "b", "c"}
    assert runner.batches[0] == ["a", "b", "c"]
    assert ["a"] in runner.batches and ["a", "b"] in runner.batches
    for batch, positions in zip(runner.batches, runner.positions, strict=True):
        assert positions <= 60 or len(batch) == 1
        assert batch == sorted(batch), "oldest first"
    # Whoever waits loses time, nothing else.
    alone = run_one(arbitrary(seed=1, eos_shares=[0.0], sure=0.0), growing())
    assert all(output.canvas_token_ids == alone.canvas_token_ids for output in outputs.values())
    assert all(output.usage.nfe == alone.usage.nfe for output in outputs.values())


def test_a_row_larger_than_the_budget_runs_alone() -> None:
    runner = ScriptedRunner(says("hello"))
    engine = engine_of(runner, max_positions=10)
    engine.add("small", encode("?"), fixed(4, 2))
    engine.add("huge", encode("0123456789"), fixed(20, 2))
    engine.add("after", encode("?"), fixed(4, 2))
    outputs = run_all(engine)
    assert set(outputs) == {"small", "huge", "after"}
    assert runner.batches == [["small"]] * 2 + [["huge"]] * 2 + [["after"]] * 2


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 24)), min_size=1, max_size=8),
    st.integers(1, 4),
    st.integers(1, 120),
    st.integers(0, 2**16),
)
def test_everybody_finishes_with_what_they_would_get_alone(
    requests: list[tuple[int, int]], max_rows: int, max_positions: int, seed: int
) -> None:
    script = arbitrary(seed, eos_shares=[0.1, 0.9, 0.5])
    runner = ScriptedRunner(script)
    engine = engine_of(runner, max_rows=max_rows, max_positions=max_positions)
    kinds = [
        {"policy": "rho-eos"},
        {"policy": "daedal"},
        {"policy": "fixed"},
        {"policy": "rho-eos", "signal": "confidence", "early_stop": False},
    ]
    params = {
        str(index): DecodeParams(initial_length=length, max_new_tokens=40, **kinds[index % 4])
        for index, (_, length) in enumerate(requests)
    }
    for (id, how), (prompt, _) in zip(params.items(), requests, strict=True):
        engine.add(id, encode("?" * prompt), how)
    outputs = run_all(engine)
    for batch, positions in zip(runner.batches, runner.positions, strict=True):
        assert len(batch) <= max_rows
        assert positions <= max_positions or len(batch) == 1
    for (id, how), (prompt, _) in zip(params.items(), requests, strict=True):
        alone = run_one(script, how, "?" * prompt)
        assert outputs[id].canvas_token_ids == alone.canvas_token_ids
        assert outputs[id].usage.positions_evaluated == alone.usage.positions_evaluated


def test_a_running_request_can_be_cancelled() -> None:
    runner = ScriptedRunner(says("hello"))
    engine = engine_of(runner, max_rows=1)
    length = {"initial_length": 8, "block_length": 1}
    handle = engine.add("a", encode("?"), DecodeParams(policy="fixed", **length))
    engine.add("b", encode("?"), fixed(4, 1))
    engine.step()
    engine.step()
    engine.cancel(handle)
    output = handle.result()
    assert runner.released == ["a"]
    assert output.finish_reason is FinishReason.CANCELLED
    assert output.text == "he"
    assert MASK not in output.canvas_token_ids
    assert output.usage.nfe == 2
    assert set(run_all(engine)) == {"b"}
    assert runner.batches == [["a"], ["a"], ["b"]]


def test_a_waiting_request_can_be_cancelled() -> None:
    runner = ScriptedRunner(says("hello"))
    engine = engine_of(runner, max_rows=1)
    engine.add("a", encode("?"), fixed(4, 1))
    waiting = engine.add("b", encode("?"), fixed(4, 1))
    engine.cancel(waiting)
    output = waiting.result()
    assert (output.text, output.usage.nfe) == ("", 0)
    assert set(run_all(engine)) == {"a"}


def test_cancelling_what_is_done_changes_nothing() -> None:
    engine = engine_of(says("hello"))
    handle = engine.add("a", encode("?"), fixed(4, 1))
    output = run_all(engine)["a"]
    engine.cancel(handle)
    assert handle.result() is output
    engine.step()
    assert len(handle.events) == output.usage.nfe
