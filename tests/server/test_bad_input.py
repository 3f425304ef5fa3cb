"""Whatever a client sends: a status in the 400s and a sentence that names what is wrong."""

import json
from typing import Any

import httpx
import pytest

from tests.scripted import says
from tests.server.clients import Web, connect, error_of
from tests.server.conftest import Process
from tests.server.scripted_server import ControlledRunner, serving

JSON = {"content-type": "application/json"}


def raw(web: Web, content: str, path: str = "chat/completions") -> httpx.Response:
    return web.post(f"/v1/{path}", content=content, headers=JSON)


def completion(field: str, value: str) -> str:
    """A body, written out: not all of these could be made by a JSON encoder."""
    return f'{{"prompt": "x", {field}: {value}}}'


NUMBERS = ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000]
HALVES = [r'"\ud800"', r'"a\udfffb"', r'["x", "\ud800"]']
PROMPTS = ['""', '"  "', "[]", '[""]', "[[]]", "[-1]", "[1000000000]", "[1.5]", "[true]", "null"]
HOSTILE = [
    *("", "{", "nonsense", "[]", "null", '"text"', "[" * 100_000, '{"a": ' * 5000, "\x00"),
    *(completion('"temperature"', number) for number in NUMBERS),
    *(completion('"max_tokens"', number) for number in NUMBERS),
    *(completion('"stop"', half) for half in HALVES),
    *(completion('"suffix"', half) for half in HALVES),
    completion(HALVES[0], "1"),
    *(completion('"threshold"', "[" * depth + "]" * depth) for depth in (50, 400, 900)),
    *(completion('"tools"', "[" * depth + "]" * depth) for depth in (50, 400, 900)),
    *(f'{{"prompt": {prompt}}}' for prompt in PROMPTS),
]


@pytest.mark.parametrize("content", HOSTILE, ids=lambda content: content[:40].strip("\x00"))
def test_a_body_that_means_nothing(web: Web, content: str) -> None:
    error_of(raw(web, content, "completions"))


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded"])
def test_a_body_must_be_declared_as_json(web: Web, kind: str) -> None:
    """A page of another origin can send a form without asking, but not JSON."""
    content = json.dumps({"messages": [{"role": "user", "content": "x"}]})
    answer = web.post("/v1/chat/completions", content=content, headers={"content-type": kind})
    assert "application/json" in error_of(answer)["message"]


def message(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "x", **fields}]}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"frobnicate": 1}, "frobnicate"),
        ({"max_new_tokens": 5}, "did you mean 'max_tokens'"),
        ({"max_tokens": 8, "max_completion_tokens": 9}, "max_completion_tokens"),
        ({"n": 17}, "16"),
        ({"n": 10**30}, "limit"),
        ({"seed": 2**64 - 1, "n": 2}, "seed"),
        ({"policy": "fixed", "rho_low": 0.1}, "rho_low"),
        ({"initial_length": 9}, "initial_length is 9, but takes at most max_tokens"),
        ({"initial_length": 10**6, "max_tokens": 10**6}, "context"),
        ({"stream_mode": "dream"}, "stream_mode"),
        ({"stream_mode": "denoise"}, "stream_mode"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x"),
        ({"messages": []}, "messages"),
        (message(content=""), "empty"),
        (message(content=None), "messages.0.content"),
        (message(role="pope"), "messages.0.role"),
        (message(mood=1), "messages.0.mood"),
        (message(content=[{"type": "image_url"}]), "reads text only"),
        (message(role="assistant", tool_calls=[{}]), "tool_calls"),
        ({"deadline_seconds": 0}, "deadline_seconds"),
        ({"top_logprobs": 3}, "goes with logprobs: true"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "stream": True, "stream_mode": "denoise"}, "stream_mode text"),
    ],
)
def test_a_bad_field_is_named(web: Web, fields: dict[str, Any], named: str) -> None:
    assert named in error_of(web.chat(**{"max_tokens": 8, **fields}))["message"]


def test_a_long_value_is_not_sent_back_whole(web: Web) -> None:
    error = error_of(web.chat(policy="x" * 100_000))
    assert error["param"] == "policy" and len(error["message"]) < 1100


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("store", True),
        ("prediction", {"type": "content", "content": "x"}),
        ("functions", [{"name": "f"}]),
        ("function_call", "f"),
        ("logit_bias", {"5": 10}),
        ("presence_penalty", -1),
        ("echo", True),
        ("best_of", 2),
    ],
)
def test_what_cannot_be_honoured_is_refused(web: Web, field: str, value: Any) -> None:
    of_completions = field in ("echo", "best_of")
    answer = (web.complete if of_completions else web.chat)(max_tokens=8, **{field: value})
    error = error_of(answer)
    assert error["param"] == field
    assert "not supported" in error["message"]


def test_unknown_models_and_paths(web: Web) -> None:
    assert error_of(web.chat(model="gpt-4"), 404)["code"] == "model_not_found"
    error_of(raw(web, completion('"model"', HALVES[0]), "completions"), 404)
    for path in ("/v1/nothing", "/static/../app.py", "/static/%2e%2e/app.py"):
        error_of(web.get(path), 404)
    error_of(web.get("/v1/chat/completions"), 405)
    for path, word in {
        "/chat/completions": "'/v1/chat/completions'",
        "/v1/completion": "'/v1/completions'",
        "/models": "'/v1/models'",
        "/v1/responses": "/v1/chat/completions",
        "/tokenize": "max_model_len",
        "/somewhere": "/v1/models",
    }.items():
        assert word in error_of(web.post(path, json={}), 404)["message"]


def test_more_than_this_server_gives(web: Web) -> None:
    message = error_of(web.chat("x" * 1000))["message"]
    assert "512" in message and "10" in message  # the context, and a four-digit prompt
    runner = ControlledRunner(says("ok"))
    with serving(runner, max_choices=4, max_prompt_tokens=3000) as own:
        long = error_of(own.http.complete(prompt="x" * 3001))["message"]
        assert "3001 tokens" in long and "3000" in long
        many = error_of(own.http.complete(prompt=["a", "b", "c"], n=2))["message"]
        assert "6" in many and "4" in many


def test_a_body_that_is_too_large(web: Web) -> None:
    """With its length declared and without, and the server goes on."""
    large = json.dumps({"prompt": "x" * 10_000_000})
    pieces = (large[start : start + 65536].encode() for start in range(0, len(large), 65536))
    chunked = web.post("/v1/completions", content=pieces, headers=JSON)
    for response in (raw(web, large, "completions"), chunked):
        assert "1048576" in error_of(response, 413)["message"]
    assert web.get("/ready").status_code == 200


def test_not_even_http(server: Process) -> None:
    with connect(server.url) as plain:
        plain.sendall(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
        assert plain.recv(100).startswith(b"HTTP/1.1 400")
