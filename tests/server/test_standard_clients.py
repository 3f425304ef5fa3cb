"""What standard clients send by themselves is taken where it changes nothing; logprobs are real."""

import math
from typing import Any, get_type_hints

import openai
import pytest
from openai.types import completion_create_params as completion_params
from openai.types.chat import completion_create_params as chat_params

from rho_eos import LLM, DecodeParams, __version__
from tests.scripted import says
from tests.server.clients import Web, events, text_of
from tests.server.conftest import MODEL, Process
from tests.server.scripted_server import ControlledRunner, serving
from tests.support import wait_until

MESSAGES: list[Any] = [{"role": "user", "content": "hello"}]
BODY: dict[str, Any] = {"initial_length": 16, "max_tokens": 24}


@pytest.fixture(scope="module")
def plain(web: Web) -> str:
    return text_of(web.chat(**BODY))


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
        {"policy": "rho-eos", "commit": None, "steps": None, "expansion_base": None},
        {"stop": None, "seed": None, "n": None, "temperature": None, "model": MODEL},
        {"messages": [{**MESSAGES[0], "name": "bob"}]},
        dict.fromkeys(
            sorted(
                get_type_hints(chat_params.CompletionCreateParamsBase).keys()
                - {"messages", "max_tokens"}
            )
        ),
    ],
    ids=lambda fields: str(fields)[:70],
)
def test_what_changes_nothing_is_taken(web: Web, plain: str, fields: dict[str, Any]) -> None:
    assert text_of(web.chat(**BODY, **fields)) == plain


def test_null_is_taken_for_every_field_of_completions(web: Web) -> None:
    known = get_type_hints(completion_params.CompletionCreateParamsBase)
    body = dict.fromkeys(known) | {"prompt": "hello", "max_tokens": 8}
    assert web.complete(**body).status_code == 200


EMPTY = {"annotations": [], "tool_calls": [], "provider_specific_fields": {"refusal": None}}


@pytest.mark.parametrize("more", [{}, EMPTY, {"content": None}], ids=str)
def test_answers_are_taken_back_as_clients_dump_them(
    client: openai.OpenAI, llm: LLM, more: dict[str, Any]
) -> None:
    """A second turn with the answer of the first, as `model_dump()` gives it, and as null."""
    create = client.chat.completions.create
    first = create(model=MODEL, messages=MESSAGES, max_tokens=16).choices[0].message
    earlier: Any = first.model_dump() | more
    answer = create(model=MODEL, messages=[*MESSAGES, earlier, *MESSAGES], max_tokens=16)
    content = earlier["content"] or ""
    said = [*MESSAGES, {"role": "assistant", "content": content}, *MESSAGES]
    assert answer.choices[0].message.content == llm.chat(said, max_new_tokens=16).text


# ── log-probabilities ────────────────────────────────────────────────────────────────────────

FIXED: dict[str, Any] = {"policy": "fixed", "initial_length": 24}


def test_logprobs_are_the_probabilities_at_commit(client: openai.OpenAI, llm: LLM) -> None:
    """They stand in the trace of a run that never moves a token."""
    warm: dict[str, Any] = {"temperature": 3.0, "seed": 3}
    [want] = llm.generate(["hello"], DecodeParams(**FIXED, **warm, trace=True))
    confidence = {at: how for record in want.trace for at, _, how in record.committed}
    answer = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, logprobs=True, top_logprobs=3, **warm, extra_body=FIXED
    ).choices[0]
    assert answer.message.content == want.text and answer.logprobs is not None
    told = answer.logprobs.content
    assert told is not None and len(told) == len(want.token_ids)
    assert "".join(token.token for token in told) == want.text
    assert bytes(byte for token in told for byte in token.bytes or ()).decode() == want.text
    for at, token in enumerate(told):
        assert math.exp(token.logprob) == pytest.approx(confidence[at], rel=1e-5)
        likeliest = [other.logprob for other in token.top_logprobs]
        assert len(likeliest) == 3 and likeliest == sorted(likeliest, reverse=True)
        assert sum(math.exp(each) for each in likeliest) <= 1 + 1e-5


def test_the_old_form_of_completions(client: openai.OpenAI, llm: LLM) -> None:
    create = client.completions.create
    answer = create(model=MODEL, prompt="hello", logprobs=2, extra_body=FIXED).choices[0]
    told = answer.logprobs
    assert told is not None and told.tokens and told.text_offset and told.top_logprobs
    assert "".join(told.tokens) == answer.text
    for text, offset in zip(told.tokens, told.text_offset, strict=True):
        assert answer.text[offset:].startswith(text)
    [output] = llm.generate(["hello"], raw=True, policy="fixed", initial_length=24, logprobs=2)
    assert output.logprobs is not None
    assert told.token_logprobs == pytest.approx([each.logprob for each in output.logprobs])


def test_a_stream_tells_each_token_once(web: Web) -> None:
    asked = {**BODY, "logprobs": True, "top_logprobs": 1, "max_tokens": 48, "policy": "daedal"}
    whole = web.chat(**asked).json()["choices"][0]
    told, text = [], ""
    for chunk in events(web.chat(stream=True, **asked).text)[:-1]:
        [choice] = chunk["choices"]
        text += choice["delta"].get("content", "")
        if choice["logprobs"] is not None:
            told += choice["logprobs"]["content"]
            assert "".join(token["token"] for token in told).startswith(text)
    assert text == whole["message"]["content"]
    assert told == whole["logprobs"]["content"]


@pytest.mark.parametrize(
    ("says_", "stop", "tokens"),
    [
        ("one STOP two", "STOP", ["o", "n", "e", " "]),  # what stands behind is not told
        ("aé你", None, ["a", "", "é", "", "", "你"]),  # a character stands with its last byte
    ],
)
def test_tokens_joined_are_the_text(says_: str, stop: str | None, tokens: list[str]) -> None:
    with serving(ControlledRunner(says(says_))) as server:
        asked = {"initial_length": 24, "stop": stop, "logprobs": True}
        [choice] = server.chat(**asked).json()["choices"]
        told = choice["logprobs"]["content"]
        assert [token["token"] for token in told] == tokens
        assert "".join(tokens) == choice["message"]["content"]
        assert all(token["logprob"] == pytest.approx(math.log(0.5)) for token in told)


def test_the_page_of_the_api_is_there_on_request(web: Web) -> None:
    """Also where a key is asked for: a browser cannot send one before it has the page."""
    assert web.get("/docs").status_code == 404
    with serving(ControlledRunner(says("ok")), docs=True, api_key=("secret",)) as server:
        page = server.http.get("/docs")
        assert page.status_code == 200
        assert "default-src" not in page.headers["content-security-policy"]  # a CDN's scripts
        assert "default-src" in server.http.get("/").headers["content-security-policy"]
        assert server.http.get("/openapi.json").json()["components"]["securitySchemes"]
        assert server.http.get("/v1/models").status_code == 401


def test_probes_are_answered_and_not_logged_at_info(server: Process, web: Web) -> None:
    for path in ("/", "/health", "/ready"):
        answer = web.head(path)
        assert answer.status_code == 200 and answer.content == b""
    assert web.get("/health").json() == {"status": "alive"}
    assert web.get("/ready").json() == {"status": "ready"}
    assert web.get("/version").json() == {"version": __version__}
    wait_until(lambda: "GET /version 200" in server.log.read_text())  # told after the answer
    lines = server.log.read_text()
    probes = ("GET /health", "HEAD /health", "GET /ready 200", "HEAD /ready 200", "HEAD / ")
    assert not any(probe in lines for probe in probes)
