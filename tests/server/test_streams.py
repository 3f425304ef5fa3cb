"""What travels in a stream: whole characters, each once; every step on request; errors in words."""

import json
from typing import Any

import httpx
import pytest

from rho_eos import LLM, DecodeParams
from rho_eos.views.narration import explain
from tests.scripted import says
from tests.server.clients import events
from tests.server.conftest import MODEL, Process
from tests.server.scripted_server import ControlledRunner, Scripted, chat_body, serving

WORDY = "Grüße – 你好 👩‍🚀 ρ ≤ 0.8"


def stream(server: Scripted, content: str = "?", **fields: Any) -> list[Any]:
    return events(server.chat(content, stream=True, **fields).text)


def test_characters_are_never_split() -> None:
    """One token per byte, one token per step: most steps end within a character."""
    with serving(ControlledRunner(says(WORDY))) as server:
        *chunks, done = stream(server, initial_length=100)
        assert done == "[DONE]"
        deltas = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
        assert "".join(deltas) == WORDY
        assert "\ufffd" not in "".join(deltas)
        assert len([delta for delta in deltas if delta]) == len(WORDY)


def test_a_stop_string_is_held_back_until_it_is_none() -> None:
    with serving(ControlledRunner(says("one STOR two STOP three"))) as server:
        *chunks, _ = stream(server, initial_length=64, stop="STOP")
        deltas = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
        assert "".join(deltas) == "one STOR two "
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def denoise(server: Process, **fields: object) -> httpx.Response:
    """The answer to "hello" with an event for every step."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], **fields}
    return httpx.post(
        f"{server.url}/v1/chat/completions",
        json=body | {"stream": True, "stream_mode": "denoise"},
        timeout=120,
        trust_env=False,
    )


@pytest.mark.parametrize("policy", ["rho-eos", "daedal", "fixed", "released"])
def test_denoise_events_retell_the_whole_generation(policy: str, server: Process, llm: LLM) -> None:
    """The canvas rebuilt from the events alone, by other code than ours, gives the text."""
    fields = {"policy": policy, "initial_length": 24, "max_tokens": 96}
    response = denoise(server, **fields)
    assert response.headers["content-type"].startswith("text/event-stream")
    first, *steps, last, end = events(response.text)
    params = DecodeParams(policy=policy, initial_length=24, max_new_tokens=96, trace=True)
    want = llm.generate(["hello"], params)[0]

    assert end == "[DONE]"
    assert first["object"] == "rho_eos.start"
    assert first["params"] == json.loads(params.replaced(trace=False).model_dump_json())
    assert first["region"] == (None if params.region is None else list(params.region))
    assert (first["length"], first["policy"]) == (24, policy)
    assert last["object"] == "rho_eos.done"
    assert (last["text"], last["finish_reason"]) == (want.text, want.finish_reason)
    assert last["usage"]["completion_tokens"] == want.usage.e_token
    assert [step["step"] for step in steps] == list(range(want.usage.nfe))
    assert steps[-1]["positions_evaluated"] == want.usage.positions_evaluated
    assert last["usage"]["rho_eos"]["positions_evaluated"] == want.usage.positions_evaluated

    canvas: list[str | None] = [None] * first["length"]
    for step, record in zip(steps, want.trace, strict=True):
        assert (step["length"], step["masks"]) == (len(canvas), canvas.count(None))
        assert (step["rho"], step["action"]) == (record.rho, record.action)
        assert step["why"] == explain(params, record)
        for position, text, confidence, is_end in step["committed"]:
            assert canvas[position] is None
            assert 0 < confidence <= 1
            canvas[position] = "END" if is_end else text
        if step["moved"] is not None:
            before, canvas = canvas, []
            for first_old, count in step["moved"]:
                new = first_old is None
                canvas += [None] * count if new else before[first_old : first_old + count]
            for position, text, is_end in step["written"]:
                canvas[position] = "END" if is_end else text
        assert len(canvas) == step["length"] + step["change"]
    assert len(canvas) == want.usage.n_token
    text = canvas[: canvas.index("END") if "END" in canvas else None]
    assert None not in text


def test_denoise_events_tell_what_a_window_saved(server: Process, llm: LLM) -> None:
    fields = {"policy": "fixed", "initial_length": 96, "cache": "window"}
    response = denoise(server, **fields)
    _, *steps, last, _ = events(response.text)
    want = llm.generate(["hello"], DecodeParams(**fields, trace=True))[0]
    usage, told = want.usage, last["usage"]["rho_eos"]
    assert 0 < usage.refreshes < usage.nfe
    for name in ("positions_evaluated", "positions_exact", "refreshes"):
        assert told[name] == getattr(usage, name), name
    assert sum(step["computed"] for step in steps) == usage.positions_evaluated
    assert sum(step["exact"] for step in steps) == usage.positions_exact
    assert sum(step["refresh"] for step in steps) == usage.refreshes
    for step in steps:
        assert step["exact"] == usage.prompt_tokens + step["length"]
        window = f"A window: {step['computed']} of {step['exact']} positions computed"
        assert step["why"].startswith(window) is not step["refresh"]


def test_denoise_events_exist_for_completions_and_for_several_texts() -> None:
    with serving(ControlledRunner(says("abc"))) as server:
        body = {"model": "scripted", "prompt": ["x", "y"], "stream": True, "stream_mode": "denoise"}
        *told, end = events(server.http.post("/v1/completions", json=body).text)
        assert end == "[DONE]"
        for index in (0, 1):
            kinds = [event["object"] for event in told if event["index"] == index]
            assert kinds[0] == "rho_eos.start"
            assert kinds[-1] == "rho_eos.done"
            assert set(kinds[1:-1]) == {"rho_eos.step"}


def test_a_failure_in_the_middle_of_a_stream_is_its_last_event() -> None:
    runner = ControlledRunner(says("a long enough text"))
    with serving(runner) as server:
        steps = iter(range(1000))
        runner.fault = lambda prompts: ValueError("boom") if next(steps) == 4 else None
        for mode in ("text", "denoise"):
            steps = iter(range(1000))
            told = stream(server, stream_mode=mode, initial_length=32)
            assert told[-1]["error"]["code"] == "request_failed"
            assert len(told) > 2


def test_a_failure_before_the_first_event_is_an_ordinary_error() -> None:
    runner = ControlledRunner(says("never"))
    runner.fault = lambda prompts: ValueError("boom")
    with serving(runner) as server:
        for mode in ("text", "denoise"):
            answer = server.chat(stream=True, stream_mode=mode)
            assert answer.status_code == 500
            assert answer.json()["error"]["code"] == "request_failed"


def test_an_empty_answer_is_still_a_whole_stream() -> None:
    with serving(ControlledRunner(says(""))) as server:
        *chunks, done = stream(server, initial_length=8)
        assert done == "[DONE]"
        assert [c["choices"][0]["finish_reason"] for c in chunks] == [None, "stop"]
        assert chat_body()["model"] == chunks[0]["model"]
