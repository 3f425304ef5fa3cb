"""Whatever a client sends: a status in the 400s and a sentence that names what is wrong."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from rho_eos import DecodeParams, UserError
from tests.scripted import says
from tests.server.conftest import MODEL, Process
from tests.server.scripted_server import ControlledRunner, Scripted, serving


@pytest.fixture(scope="module")
def http(server: Process) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=120, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def scripted() -> Iterator[Scripted]:
    with serving(ControlledRunner(says("ok")), max_choices=4, max_prompt_tokens=3000) as server:
        yield server


def error_of(response: httpx.Response, status: int = 400) -> dict[str, Any]:
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    return error


def chat(http: httpx.Client, **fields: Any) -> httpx.Response:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "max_tokens": 8}
    return http.post("/v1/chat/completions", json=body | fields)


def raw(http: httpx.Client, content: str, path: str = "/v1/chat/completions") -> httpx.Response:
    return http.post(path, content=content, headers={"content-type": "application/json"})


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "nonsense",
        "[]",
        "null",
        '"text"',
        "[" * 100_000,
        '{"a": ' * 5000,
        "\x00",
        "1" * 9000,
    ],
)
def test_a_body_that_is_no_json_object(http: httpx.Client, content: str) -> None:
    error_of(raw(http, content))


def test_a_body_must_be_declared_as_json(http: httpx.Client) -> None:
    """A page of another origin can send a form without asking, but not JSON."""
    content = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "x"}]})
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        response = http.post(
            "/v1/chat/completions", content=content, headers={"content-type": kind}
        )
        assert "application/json" in error_of(response)["message"]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"frobnicate": 1}, "frobnicate"),
        ({"max_new_tokens": 5}, "did you mean 'max_tokens'"),
        ({"treshold": 0.9}, "did you mean 'threshold'"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": "8"}, "max_tokens"),
        ({"max_tokens": 8, "max_completion_tokens": 9}, "max_completion_tokens"),
        ({"n": 0}, "n"),
        ({"n": 17}, "16"),
        ({"n": 10**30}, "limit"),
        ({"seed": -1}, "seed"),
        ({"stop": [1]}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"policy": "best"}, "policy"),
        ({"policy": []}, "policy"),
        ({"preset": "huge"}, "preset"),
        ({"rho_low": 0.9, "rho_high": 0.1}, "rho_low"),
        ({"threshold": 0}, "threshold"),
        ({"initial_length": 9}, "initial_length"),
        ({"initial_length": 10**12, "max_tokens": 10**12}, "initial_length"),
        ({"initial_length": 10**6, "max_tokens": 10**6}, "context"),
        ({"max_tokens": []}, "max_tokens"),
        ({"max_tokens": [], "max_completion_tokens": {}}, "max_completion_tokens"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": 0}, "top_k"),
        ({"top_k": -2}, "top_k"),
        ({"temperature": 101}, "temperature"),
        ({"threshold": {"a": [1]}}, "threshold"),
        ({"threshold": 10**400}, "threshold"),
        ({"seed": 2**64 - 1, "n": 2}, "seed"),
        ({"early_stop": 1}, "early_stop"),
        ({"stop": {"a": 1}}, "stop"),
        ({"block_length": 0}, "block_length"),
        ({"commit": "threshold", "steps": 5}, "steps"),
        ({"stream": "yes"}, "stream"),
        ({"stream_mode": "dream"}, "stream_mode"),
        ({"stream_mode": "denoise"}, "stream_mode"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "user", "content": ""}]}, "empty"),
        ({"messages": [{"role": "user", "content": None}]}, "messages.0.content"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "pope", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": "x", "mood": 1}]}, "messages.0.mood"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages.0.content",
        ),
        ({"deadline_seconds": 0}, "deadline_seconds"),
        ({"top_logprobs": 3}, "goes with logprobs: true"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": 3}, "logprobs"),
        ({"logprobs": True, "stream": True, "stream_mode": "denoise"}, "stream_mode text"),
        ({"messages": [{"role": "assistant", "content": "x", "tool_calls": [{}]}]}, "tool_calls"),
    ],
)
def test_a_bad_field_is_named(http: httpx.Client, fields: dict[str, Any], named: str) -> None:
    assert named in error_of(chat(http, **fields))["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"policy": "fixed", "rho_low": 0.1}, "rho_low"),
        ({"commit": "threshold", "steps": 4}, "steps"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 1.5, "max_tokens": None}, "max_tokens"),
        ({"initial_length": 9}, "initial_length"),
        ({"stop": [1]}, "stop"),
        ({"preset": "huge"}, "preset"),
        ({"policy": "guess"}, "policy"),
    ],
)
def test_a_parameter_is_refused_in_the_words_of_the_library(
    http: httpx.Client, fields: dict[str, Any], param: str
) -> None:
    params = {"max_tokens": 8, **fields}
    limit = params.pop("max_completion_tokens", None) or params["max_tokens"]
    params["max_new_tokens"] = limit
    del params["max_tokens"]
    with pytest.raises(UserError) as refused:
        DecodeParams(**params)
    sentence = str(refused.value).replace("max_new_tokens", "max_tokens")
    error = error_of(chat(http, **fields))
    assert (error["message"], error["param"]) == (sentence, param)
    assert param in sentence


def test_null_is_not_given_even_where_a_policy_has_no_such_parameter(http: httpx.Client) -> None:
    nothing = {"policy": "fixed", "rho_low": None, "preset": None, "steps": None, "top_k": None}
    assert chat(http, **nothing).status_code == 200


def test_a_long_value_is_not_sent_back_whole(http: httpx.Client) -> None:
    error = error_of(chat(http, policy="x" * 100_000))
    assert error["param"] == "policy" and len(error["message"]) < 1100


@pytest.mark.parametrize("depth", [50, 400, 900])
def test_a_deeply_nested_value(http: httpx.Client, depth: int) -> None:
    nested = "[" * depth + "]" * depth
    content = f'{{"model": "{MODEL}", "prompt": "x", "threshold": {nested}}}'
    error_of(raw(http, content, "/v1/completions"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("store", True),
        ("prediction", {"type": "content", "content": "x"}),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "alloy", "format": "wav"}),
        ("web_search_options", {}),
        ("repetition_penalty", 1.1),
        ("min_p", 0.1),
        ("ignore_eos", True),
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("tool_choice", "required"),
        ("functions", [{"name": "f"}]),
        ("response_format", {"type": "json_object"}),
        ("logit_bias", {"5": 10}),
        ("frequency_penalty", 1),
        ("presence_penalty", -1),
    ],
)
def test_what_cannot_be_honoured_is_refused(http: httpx.Client, field: str, value: Any) -> None:
    error = error_of(chat(http, **{field: value}))
    assert error["param"] == field
    assert "not supported" in error["message"]


def test_completions_refuse_theirs(http: httpx.Client) -> None:
    for field, value in (("echo", True), ("best_of", 2)):
        body = {"model": MODEL, "prompt": "x", "max_tokens": 8, field: value}
        assert error_of(http.post("/v1/completions", json=body))["param"] == field


@pytest.mark.parametrize(
    "prompt", ["", "  ", [], [""], [[]], [-1], [10**9], [1.5], [True], [None], {"a": 1}, 5, None]
)
def test_a_bad_prompt(http: httpx.Client, prompt: Any) -> None:
    error_of(http.post("/v1/completions", json={"model": MODEL, "prompt": prompt}))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000])
def test_numbers_that_are_none(http: httpx.Client, number: str) -> None:
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "x"}]})
    for field in ("temperature", "rho_low", "threshold", "max_tokens", "cfg_scale"):
        error_of(raw(http, body[:-1] + f', "{field}": {number}}}'))


def test_half_a_character(http: httpx.Client) -> None:
    for text in (r"\ud800", r"a\udfffb"):
        content = f'{{"model": "{MODEL}", "messages": [{{"role": "user", "content": "{text}"}}]}}'
        assert "surrogate" in error_of(raw(http, content))["message"]
        error_of(raw(http, f'{{"model": "{MODEL}", "prompt": "{text}"}}', "/v1/completions"))
        error_of(
            raw(http, f'{{"model": "{MODEL}", "prompt": "x", "{text}": 1}}', "/v1/completions")
        )
        for field in (f'"stop": "{text}"', f'"stop": ["x", "{text}"]', f'"policy": "{text}"'):
            body = f'{{"model": "{MODEL}", "prompt": "x", {field}}}'
            assert "surrogate" in error_of(raw(http, body, "/v1/completions"))["message"]
        named = raw(http, f'{{"model": "{text}", "prompt": "x"}}', "/v1/completions")
        error_of(named, 404)


def test_unknown_models_and_paths(http: httpx.Client) -> None:
    assert error_of(chat(http, model="gpt-4"), 404)["code"] == "model_not_found"
    error_of(http.get("/v1/nothing"), 404)
    error_of(http.get("/v1/chat/completions"), 405)
    error_of(http.get("/static/../app.py"), 404)
    error_of(http.get("/static/%2e%2e/app.py"), 404)


def test_a_prompt_that_is_too_long_names_the_limits(http: httpx.Client, scripted: Scripted) -> None:
    long = chat(http, messages=[{"role": "user", "content": "x" * 1000}])
    message = error_of(long)["message"]
    assert "512" in message and "10" in message  # the context, and a four-digit prompt
    own = scripted.http.post("/v1/completions", json={"model": "scripted", "prompt": "x" * 3001})
    assert "3001 tokens" in error_of(own)["message"] and "3000" in error_of(own)["message"]


def test_too_many_texts_at_once(scripted: Scripted) -> None:
    body = {"model": "scripted", "prompt": ["a", "b", "c"], "n": 2}
    message = error_of(scripted.http.post("/v1/completions", json=body))["message"]
    assert "6" in message and "4" in message


def test_a_body_that_is_too_large(http: httpx.Client) -> None:
    """With its length declared and without, and the server goes on."""
    large = json.dumps({"model": MODEL, "prompt": "x" * 10_000_000})
    headers = {"content-type": "application/json"}
    declared = raw(http, large, "/v1/completions")
    pieces = (large[start : start + 65536].encode() for start in range(0, len(large), 65536))
    chunked = http.post("/v1/completions", content=pieces, headers=headers)
    for response in (declared, chunked):
        assert "1048576" in error_of(response, 413)["message"]
    assert http.get("/ready").status_code == 200


def test_not_even_http(server: Process) -> None:
    import socket

    with socket.create_connection(("127.0.0.1", httpx.URL(server.url).port), 20) as plain:
        plain.sendall(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
        assert plain.recv(100).startswith(b"HTTP/1.1 400")


def test_text_behind_a_gap_that_is_too_long_is_not_blamed_on_the_prompt(http: httpx.Client) -> None:
    long = "x" * 100_000
    for fields, blamed in (
        ({"prompt": long}, "the prompt has 100000 characters"),
        ({"prompt": "x", "suffix": long}, "the text that is given has 100001 characters"),
        ({"template": f"a___{long}"}, "the text that is given has 100004 characters"),
    ):
        response = http.post("/v1/completions", json={"model": MODEL, "max_tokens": 8} | fields)
        assert error_of(response)["message"].startswith(blamed)
