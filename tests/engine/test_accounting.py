"""Traces and figures: each must follow from what the runner saw."""

import json

import pytest

from rho_eos.base.outputs import Output, StepRecord
from rho_eos.decoding.params import DecodeParams
from tests.scripted import (
    EOS,
    MASK,
    RecordingEngine,
    ScriptedRunner,
    arbitrary,
    encode,
    engine_of,
    run_all,
)

Run = tuple[dict[str, Output], ScriptedRunner, RecordingEngine]

LIMITS = {"initial_length": 24, "max_new_tokens": 96, "block_length": 16, "trace": True}
PROMPT = "prompt"
PARAMS = {
    "fixed": DecodeParams(policy="fixed", **LIMITS),
    "rho-eos": DecodeParams(**LIMITS),
    "rho-eos, confidence": DecodeParams(signal="confidence", **LIMITS),
    "rho-eos, to the end": DecodeParams(early_stop=False, **LIMITS),
    "daedal": DecodeParams(policy="daedal", early_stop=False, **LIMITS),
    "released": DecodeParams(policy="released", early_stop=False, **LIMITS),
    "guided": DecodeParams(cfg_scale=1.0, **LIMITS),
}


def replay(trace: list[StepRecord], length: int, limit: int) -> list[int]:
    """The canvas that the records describe, MASKs where nothing was committed."""
    canvas = [MASK] * length
    for record in trace:
        assert record.length == len(canvas)
        assert record.masks == canvas.count(MASK)
        for position, token, _ in record.committed:
            canvas[position] = token
        if record.moved is None:
            assert (record.action, record.change) == ("hold", 0)
            continue
        before, canvas = canvas, []
        for first, count in record.moved:
            canvas += [MASK] * count if first is None else before[first : first + count]
        for position, token in record.written:
            canvas[position] = MASK if token is None else token
        assert len(canvas) == record.length + record.change
    return canvas


@pytest.fixture(params=[0, 1, 2])
def run(request: pytest.FixtureRequest) -> Run:
    shares = [[0.1, 0.5, 0.9, 1.0], [0.0, 0.3], [0.95, 0.5]][request.param]
    runner = ScriptedRunner(arbitrary(request.param, shares))
    engine = engine_of(runner, max_rows=4)
    for id, params in PARAMS.items():
        engine.add(id, encode(PROMPT), params)
    return run_all(engine), runner, engine


def test_a_trace_replayed_gives_the_final_canvas(
    run: Run,
) -> None:
    for id, output in run[0].items():
        canvas = replay(output.trace, 24, 96)
        assert [EOS if token == MASK else token for token in canvas] == output.canvas_token_ids, id


def test_usage_is_what_an_independent_count_gives(
    run: Run,
) -> None:
    outputs, runner, _ = run
    for id, output in outputs.items():
        usage, trace, canvas = output.usage, output.trace, output.canvas_token_ids
        assert usage.prompt_tokens == len(PROMPT)
        assert usage.nfe == len(trace) == sum(id in batch for batch in runner.batches)
        rows = 2 if id == "guided" else 1
        assert usage.positions_evaluated == rows * sum(len(PROMPT) + r.length for r in trace)
        assert usage.committed == sum(len(record.committed) for record in trace)
        assert usage.expansions == sum(record.change > 0 for record in trace)
        assert usage.contractions == sum(record.change < 0 for record in trace)
        assert usage.adjustments == usage.expansions + usage.contractions
        assert usage.n_token == len(canvas)
        trimmed = list(canvas)
        while trimmed and trimmed[-1] == EOS:
            trimmed.pop()
        assert usage.e_token == len(trimmed)
        assert usage.e_ratio == (len(trimmed) / len(canvas) if canvas else 0)
        assert usage.tokens_per_forward == usage.committed / usage.nfe
    total = sum(output.usage.positions_evaluated for output in outputs.values())
    assert total == sum(runner.positions), "what the rows report is what the forwards evaluated"


def test_waiting_and_running_time_add_up(
    run: Run,
) -> None:
    outputs, runner, _ = run
    for id, output in outputs.items():
        assert output.usage.seconds_running > 0
        assert output.usage.seconds_waiting >= 0
        first_wave = id in runner.batches[0]
        if not first_wave:
            assert output.usage.seconds_waiting > 0


def test_events_carry_what_is_final_and_a_draft_of_the_rest(run: Run) -> None:
    _, _, engine = run
    for id, handle in engine.handles.items():
        for event, step in zip(handle.events, engine.steps[id], strict=True):
            assert event.record is step.record
            canvas = [*event.token_ids, *event.draft_ids]
            assert MASK not in canvas
            for position, token, _ in event.record.committed:
                assert canvas[position] == token
            if id == "released":  # it may still cut what is committed: nothing is final
                assert event.output or not event.token_ids
            else:
                assert event.token_ids == step.after[: len(event.token_ids)].tolist()


def test_an_output_is_one_json_line(
    run: Run,
) -> None:
    for output in run[0].values():
        line = json.loads(json.dumps(output.as_dict()))
        assert line["token_ids"] == output.token_ids
        assert line["nfe"] == output.usage.nfe
        assert len(line["trace"]) == output.usage.nfe
        step = line["trace"][0]
        assert {"step", "length", "masks", "rho", "action", "change", "committed"} <= set(step)


def test_no_trace_is_kept_unless_asked_for() -> None:
    engine = engine_of(arbitrary(0, [0.5]))
    engine.add("only", encode("?"), DecodeParams(initial_length=8))
    output = run_all(engine)["only"]
    assert output.trace == []
    assert "trace" not in output.as_dict()
