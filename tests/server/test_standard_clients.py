"""What standard clients send by themselves is taken where it changes nothing; logprobs are real."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any, get_type_hints

import httpx
import openai
import pytest
from openai.types import completion_create_params as completion_params
from openai.types.chat import ChatCompletionMessage
from openai.types.chat import completion_create_params as chat_params

from rho_eos import LLM, DecodeParams
from tests.scripted import says
from tests.server.conftest import MODEL, Process
from tests.server.scripted_server import ControlledRunner, serving
from tests.support import wait_until

MESSAGES = [{"role": "user", "content": "hello"}]
BODY: dict[str, Any] = {"messages": MESSAGES, "initial_length": 16, "max_tokens": 24}


@pytest.fixture(scope="module")
def http(server: Process) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=120, trust_env=False) as client:
        yield client


def chat(http: httpx.Client, **fields: Any) -> httpx.Response:
    return http.post("/v1/chat/completions", json=BODY | fields)


def text_of(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["message"]["content"])


@pytest.fixture(scope="module")
def plain(http: httpx.Client) -> str:
    return text_of(chat(http))


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "u", "safety_identifier": "s", "prompt_cache_key": "k", "metadata": {"a": "b"}},
        {"service_tier": "auto", "reasoning_effort": "low", "verbosity": "medium", "metadata": {}},
        {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []},
        {"parallel_tool_calls": False, "tool_choice": "none", "store": False, "ignore_eos": False},
        {"logprobs": False, "top_logprobs": 0, "top_k": -1, "top_p": 1, "logit_bias": {}},
        {"min_p": 0, "repetition_penalty": 1, "frequency_penalty": 0.0, "presence_penalty": 0},
        {"min_p": 0.0, "repetition_penalty": 1.0, "response_format": {"type": "text"}},
        {"modalities": ["text"], "prediction": None, "model": None},
        {"stop": None, "seed": None, "n": None, "temperature": None, "model": MODEL},
        {"messages": [{**MESSAGES[0], "name": "bob"}]},
    ],
    ids=str,
)
def test_what_changes_nothing_is_taken(
    http: httpx.Client, plain: str, fields: dict[str, Any]
) -> None:
    assert text_of(chat(http, **fields)) == plain


def test_null_is_taken_for_every_field_that_openai_knows(http: httpx.Client, plain: str) -> None:
    known = get_type_hints(chat_params.CompletionCreateParamsBase).keys()
    assert len(known) > 30
    nothing = dict.fromkeys(known - {"messages", "max_tokens"})
    assert text_of(chat(http, **nothing)) == plain
    known = get_type_hints(completion_params.CompletionCreateParamsBase).keys()
    body = dict.fromkeys(known) | {"prompt": "hello", "max_tokens": 8}
    assert http.post("/v1/completions", json=body).status_code == 200


def test_options_of_a_stream(http: httpx.Client) -> None:
    for options in ({"include_obfuscation": False}, {"include_obfuscation": True}):
        answer = chat(http, stream=True, stream_options=options)
        assert answer.status_code == 200 and "usage" not in answer.text


def test_answers_are_taken_back_as_clients_dump_them(client: openai.OpenAI, llm: LLM) -> None:
    """A second turn with the answer of the first, as `model_dump()` gives it, and as null."""
    create = client.chat.completions.create
    first = create(model=MODEL, messages=MESSAGES, max_tokens=16).choices[0].message  # type: ignore[arg-type]
    assert isinstance(first, ChatCompletionMessage)
    empty = {"annotations": [], "tool_calls": [], "provider_specific_fields": {"refusal": None}}
    for content, earlier in (
        (first.content, first.model_dump()),
        (first.content, first.model_dump() | empty),
        ("", {"role": "assistant", "content": None}),
    ):
        messages = [*MESSAGES, earlier, {"role": "user", "content": "and now?"}]
        answer = create(model=MODEL, messages=messages, max_tokens=16)  # type: ignore[arg-type]
        said = [*MESSAGES, {"role": "assistant", "content": content}, messages[-1]]
        assert answer.choices[0].message.content == llm.chat(said, max_new_tokens=16).text


@pytest.mark.parametrize(
    ("part", "word"),
    [
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}, "images"),
        ({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}, "parts"),
        ({"type": "file", "file": {"file_id": "x"}}, "parts"),
    ],
)
def test_images_are_refused_in_words(http: httpx.Client, part: Any, word: str) -> None:
    content = [{"type": "text", "text": "what is this?"}, part]
    answer = chat(http, messages=[{"role": "user", "content": content}])
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert f"{word}" in error["message"] and "reads text only" in error["message"]
    assert error["param"] == "messages.0.content"


# ── log-probabilities ────────────────────────────────────────────────────────────────────────


def commits(llm: LLM, text: str, **params: Any) -> tuple[str, list[int], dict[int, float]]:
    """The text, its tokens, and from the trace of a run that never moves a token, the confidence
    with which each position was committed."""
    [output] = llm.generate(
        [text], DecodeParams(policy="fixed", initial_length=24, trace=True, **params)
    )
    by_position = {
        position: confidence
        for record in output.trace
        for position, _, confidence in record.committed
    }
    return output.text, output.token_ids, by_position


FIXED: dict[str, Any] = {"policy": "fixed", "initial_length": 24}


def test_logprobs_are_the_probabilities_at_commit(client: openai.OpenAI, llm: LLM) -> None:
    text, ids, confidence = commits(llm, "hello", temperature=3.0, seed=3)
    answer = client.chat.completions.create(
        model=MODEL,
        messages=MESSAGES,  # type: ignore[arg-type]
        logprobs=True,
        top_logprobs=3,
        temperature=3.0,
        seed=3,
        extra_body=FIXED,
    ).choices[0]
    assert answer.message.content == text and answer.logprobs is not None
    told = answer.logprobs.content
    assert told is not None and len(told) == len(ids)
    assert "".join(token.token for token in told) == text
    assert bytes(byte for token in told for byte in token.bytes or ()).decode() == text
    for at, token in enumerate(told):
        assert math.exp(token.logprob) == pytest.approx(confidence[at], rel=1e-5)
        likeliest = [other.logprob for other in token.top_logprobs]
        assert len(likeliest) == 3 and likeliest == sorted(likeliest, reverse=True)
        assert token.logprob <= likeliest[0] + 1e-6
        assert sum(math.exp(each) for each in likeliest) <= 1 + 1e-5
    assert any(token.logprob < token.top_logprobs[0].logprob for token in told), "none was drawn"


def test_without_alternatives_and_without_logprobs(http: httpx.Client) -> None:
    told = chat(http, logprobs=True).json()["choices"][0]["logprobs"]["content"]
    assert told and all(token["top_logprobs"] == [] for token in told)
    assert chat(http).json()["choices"][0]["logprobs"] is None


def test_the_old_form_of_completions(client: openai.OpenAI, llm: LLM) -> None:
    answer = client.completions.create(
        model=MODEL, prompt="hello", logprobs=2, extra_body=FIXED
    ).choices[0]
    told = answer.logprobs
    assert told is not None and told.tokens and told.text_offset and told.top_logprobs
    assert "".join(told.tokens) == answer.text
    for text, offset in zip(told.tokens, told.text_offset, strict=True):
        assert answer.text[offset:].startswith(text)
    [output] = llm.generate(["hello"], raw=True, policy="fixed", initial_length=24, logprobs=2)
    assert output.logprobs is not None
    assert told.token_logprobs == pytest.approx([each.logprob for each in output.logprobs])
    none = client.completions.create(model=MODEL, prompt="hello", logprobs=0, extra_body=FIXED)
    assert none.choices[0].logprobs is not None and none.choices[0].logprobs.top_logprobs is None


@pytest.mark.parametrize("fields", [{}, FIXED, {"policy": "daedal", "initial_length": 16}])
def test_a_stream_tells_each_token_once(http: httpx.Client, fields: dict[str, Any]) -> None:
    asked = {"logprobs": True, "top_logprobs": 1, "max_tokens": 48, **fields}
    whole = chat(http, **asked).json()["choices"][0]
    told, text = [], ""
    for line in chat(http, stream=True, **asked).text.strip().split("\n\n")[:-1]:
        [choice] = json.loads(line.removeprefix("data: "))["choices"]
        text += choice["delta"].get("content", "")
        if choice["logprobs"] is not None:
            told += choice["logprobs"]["content"]
            assert "".join(token["token"] for token in told).startswith(text)
    assert text == whole["message"]["content"]
    assert told == whole["logprobs"]["content"]


def test_tokens_behind_a_stop_string_are_not_told() -> None:
    with serving(ControlledRunner(says("one STOP two"))) as server:
        asked = {"initial_length": 24, "stop": "STOP", "logprobs": True}
        [choice] = server.chat(**asked).json()["choices"]
        told = choice["logprobs"]["content"]
        assert "".join(token["token"] for token in told) == choice["message"]["content"] == "one "
        assert all(token["logprob"] == pytest.approx(math.log(0.5)) for token in told)


def test_a_character_of_several_tokens_stands_with_the_last() -> None:
    with serving(ControlledRunner(says("aé你"))) as server:
        [choice] = server.chat(initial_length=24, logprobs=True).json()["choices"]
        told = [token["token"] for token in choice["logprobs"]["content"]]
        assert told == ["a", "", "é", "", "", "你"]


# ── small things around it ───────────────────────────────────────────────────────────────────


def test_the_model_says_how_long_a_text_it_takes(http: httpx.Client, llm: LLM) -> None:
    [model] = http.get("/v1/models").json()["data"]
    assert model["max_model_len"] == llm.context_length == 512
    assert http.get(f"/v1/models/{MODEL}").json()["max_model_len"] == 512


@pytest.mark.parametrize("path", ["/", "/health", "/ready"])
def test_head(http: httpx.Client, path: str) -> None:
    answer = http.head(path)
    assert answer.status_code == 200 and answer.content == b""


def test_the_page_of_the_api_is_there_on_request(http: httpx.Client) -> None:
    """Also where a key is asked for: a browser cannot send one before it has the page."""
    assert http.get("/docs").status_code == 404
    with serving(ControlledRunner(says("ok")), docs=True, api_key=("secret",)) as server:
        page = server.http.get("/docs")
        assert page.status_code == 200
        sources = set(re.findall(r'(?:src|href)="(https://[^/"]+)', page.text))
        allowed = page.headers["content-security-policy"]
        assert sources and all(source in allowed for source in sources)
        elsewhere = server.http.get("/").headers["content-security-policy"]
        assert not any(source in elsewhere for source in sources)
        assert server.http.get("/openapi.json").json()["components"]["securitySchemes"]
        assert server.http.get("/v1/models").status_code == 401


def test_probes_are_not_logged_at_info(server: Process, http: httpx.Client) -> None:
    http.get("/health")
    http.head("/")
    http.get("/version")
    wait_until(lambda: "GET /version 200" in server.log.read_text())  # told after the answer
    lines = server.log.read_text()
    assert not any(probe in lines for probe in ("GET /health", "GET /ready 200", "HEAD /"))
