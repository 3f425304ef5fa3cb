"""What travels in a stream: whole characters, each once; every step on request; errors in words."""

import json
from typing import Any

import pytest

from rho_eos import LLM, DecodeParams
from rho_eos.views.narration import explain
from tests.scripted import says
from tests.server.clients import Web, deltas, events
from tests.server.scripted_server import ControlledRunner, serving

WORDY = "Grüße – 你好 👩‍🚀 ρ ≤ 0.8"


@pytest.mark.parametrize(
    ("text", "fields", "sent"),
    [
        (WORDY, {"initial_length": 100}, list(WORDY)),  # one byte a step, and no half character
        # What could be the stop string is held back until it is not.
        (
            "a STOR b STOP",
            {"initial_length": 64, "stop": "STOP"},
            ["a", " ", "STOR", " ", "b", " "],
        ),
        ("", {"initial_length": 8}, []),
    ],
    ids=["characters", "a stop string", "nothing"],
)
def test_a_text_is_sent_as_it_becomes_final(
    text: str, fields: dict[str, Any], sent: list[str]
) -> None:
    with serving(ControlledRunner(says(text))) as server:
        answer = server.chat(stream=True, **fields)
        assert deltas(answer) == sent
        reasons = [chunk["choices"][0]["finish_reason"] for chunk in events(answer.text)[:-1]]
        assert [reason for reason in reasons if reason] == ["stop"]


@pytest.mark.parametrize("policy", ["rho-eos", "daedal", "fixed", "released"])
def test_denoise_events_retell_the_whole_generation(policy: str, web: Web, llm: LLM) -> None:
    """That the canvas can be rebuilt from them is tested with the page."""
    fields = {"policy": policy, "initial_length": 24, "max_tokens": 96}
    first, steps, last = web.steps(**fields)
    params = DecodeParams(policy=policy, initial_length=24, max_new_tokens=96, trace=True)
    want = llm.generate(["hello"], params)[0]
    assert first["params"] == json.loads(params.replaced(trace=False).model_dump_json())
    assert first["region"] == (None if params.region is None else list(params.region))
    assert (first["length"], first["policy"]) == (24, policy)
    assert (last["text"], last["finish_reason"]) == (want.text, want.finish_reason)
    assert last["usage"]["completion_tokens"] == want.usage.e_token
    assert steps[-1]["positions_evaluated"] == want.usage.positions_evaluated
    for step, record in zip(steps, want.trace, strict=True):
        names = ("step", "length", "change", "rho", "action")
        assert [step[name] for name in names] == [getattr(record, name) for name in names]
        assert step["why"] == explain(params, record)


def test_denoise_events_exist_for_completions_and_for_several_texts() -> None:
    with serving(ControlledRunner(says("abc"))) as server:
        answer = server.http.complete(prompt=["x", "y"], stream=True, stream_mode="denoise")
        *told, end = events(answer.text)
        assert end == "[DONE]"
        for index in (0, 1):
            kinds = [event["object"] for event in told if event["index"] == index]
            assert (kinds[0], kinds[-1]) == ("rho_eos.start", "rho_eos.done")
            assert set(kinds[1:-1]) == {"rho_eos.step"}


@pytest.mark.parametrize("mode", ["text", "denoise"])
def test_a_failure_midway_is_the_last_event(mode: str) -> None:
    runner, forwards = ControlledRunner(says("a long enough text")), iter(range(1000))
    runner.fault = lambda _: ValueError("boom") if next(forwards) == 4 else None
    with serving(runner) as server:
        answer = server.chat(stream=True, stream_mode=mode, initial_length=32)
    *before, last = events(answer.text)
    assert len(before) > 1 and last["error"]["code"] == "request_failed"
