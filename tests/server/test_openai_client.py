"""OpenAI's own client, and curl, against a real server process: answers equal the library's."""

import json
import subprocess
from typing import Any

import openai
import pytest

from rho_eos import LLM, DecodeParams, Output
from tests.server.clients import Web, deltas, text_of
from tests.server.conftest import MODEL, Process

SHORT: dict[str, Any] = {"initial_length": 16}
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 48}


def expected(llm: LLM, **params: Any) -> Output:
    merged = {"initial_length": 16, "max_new_tokens": 48} | params
    return llm.generate(["hello"], DecodeParams(**merged))[0]


def ask(client: openai.OpenAI, extra: dict[str, Any] | None = None, **fields: Any) -> Any:
    create = client.chat.completions.create
    return create(**{"model": MODEL, **HELLO, **fields}, extra_body=SHORT | (extra or {}))


def test_a_chat_answer_is_what_the_library_gives(client: openai.OpenAI, llm: LLM) -> None:
    want, answer = expected(llm), ask(client)
    [choice], usage, cost = answer.choices, answer.usage, want.usage
    assert (choice.message.role, choice.message.content) == ("assistant", want.text)
    assert choice.finish_reason == want.finish_reason
    assert (answer.object, answer.model) == ("chat.completion", MODEL)
    assert (usage.prompt_tokens, usage.completion_tokens) == (cost.prompt_tokens, cost.e_token)
    assert usage.total_tokens == cost.prompt_tokens + cost.e_token
    names = (
        *("n_token", "nfe", "positions_evaluated", "positions_exact", "positions_reused"),
        *("refreshes", "expansions", "contractions", "tokens_per_forward"),
    )
    counted = {name: getattr(cost, name) for name in names} | {"weights_version": 0}
    assert usage.rho_eos == pytest.approx(counted)


def test_streamed_deltas_join_to_the_answer(client: openai.OpenAI, llm: LLM) -> None:
    want = expected(llm)
    chunks = list(ask(client, stream=True))
    assert [c.choices[0].delta.role for c in chunks].count("assistant") == 1
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == want.text
    reasons = [c.choices[0].finish_reason for c in chunks]
    assert reasons == [None] * (len(chunks) - 1) + [want.finish_reason]
    assert len(chunks) > 3, "the text came in one piece"
    assert len({c.id for c in chunks}) == 1
    told = ask(client, stream=True, stream_options={"include_usage": True})
    *chunks, last = told
    assert all(c.usage is None and c.choices for c in chunks)
    assert last.choices == [] and last.usage.to_dict() == ask(client).usage.to_dict()


def test_n_texts_have_seeds_in_a_row(client: openai.OpenAI, llm: LLM) -> None:
    warm: dict[str, Any] = {"n": 3, "seed": 7, "temperature": 2.0}
    answer = ask(client, **warm)
    wants = [expected(llm, seed=7 + i, temperature=2.0) for i in range(3)]
    assert [c.message.content for c in answer.choices] == [want.text for want in wants]
    assert [c.index for c in answer.choices] == [0, 1, 2]
    assert len({want.text for want in wants}) == 3
    assert answer.usage.prompt_tokens == wants[0].usage.prompt_tokens  # the prompt counts once
    assert answer.usage.completion_tokens == sum(want.usage.e_token for want in wants)
    texts = ["", "", ""]
    for chunk in ask(client, **warm, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == [want.text for want in wants]


def test_completions_take_texts_and_token_ids_as_they_are(
    client: openai.OpenAI, web: Web, llm: LLM
) -> None:
    params = DecodeParams(initial_length=16, max_new_tokens=32)
    ids = llm.tokenizer.encode("two", add_special_tokens=False)
    wants = llm.generate(["one", "two"], params, raw=True)
    answer = client.completions.create(
        model=MODEL, prompt=["one", "two"], max_tokens=32, extra_body=SHORT
    )
    assert [choice.text for choice in answer.choices] == [want.text for want in wants]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == sum(want.usage.prompt_tokens for want in wants)
    asked = {**SHORT, "max_tokens": 32}
    assert text_of(web.complete(prompt=ids, **asked)) == wants[1].text
    assert "".join(deltas(web.complete(prompt="one", stream=True, **asked))) == wants[0].text


def test_a_conversation_may_come_in_parts(web: Web, llm: LLM) -> None:
    said = [("system", "be brief"), ("user", "hello"), ("assistant", "hi"), ("user", "and now?")]
    want = llm.chat([{"role": role, "content": text} for role, text in said], max_new_tokens=32)
    messages = [
        {"role": role, "content": [{"type": "text", "text": text}], "refusal": None}
        for role, text in said
    ]
    assert text_of(web.chat(messages=messages, max_completion_tokens=32)) == want.text


def test_models_can_be_listed_and_named(client: openai.OpenAI, llm: LLM) -> None:
    [model] = client.models.list()
    named = client.models.retrieve(MODEL)
    assert model.id == named.id == MODEL
    length = llm.context_length
    assert model.max_model_len == named.max_model_len == length == 512  # type: ignore[attr-defined]


def test_errors_are_the_clients_own_kinds(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-4'"):
        ask(client, model="gpt-4")
    with pytest.raises(openai.BadRequestError, match=r"rho_low is 0\.9") as refused:
        ask(client, extra={"rho_low": 0.9})
    assert refused.value.request_id


def test_curl_gets_an_answer_and_a_stream(server: Process, llm: LLM) -> None:
    def curl(**fields: Any) -> str:
        url, kind = f"{server.url}/v1/chat/completions", "content-type: application/json"
        words = ["curl", "-sSN", "--noproxy", "*", url, "-H", kind, "-d"]
        body = json.dumps(HELLO | SHORT | fields)
        return subprocess.run([*words, body], capture_output=True, check=True, text=True).stdout

    assert json.loads(curl())["choices"][0]["message"]["content"] == expected(llm).text
    assert curl(stream=True).endswith("data: [DONE]\n\n")


def test_a_completion_with_a_suffix_is_what_stands_between(
    client: openai.OpenAI, web: Web, llm: LLM
) -> None:
    how = {"policy": "fixed", "initial_length": 6}
    want = llm.infill("ab", "yz", how)
    asked = {"model": MODEL, "prompt": "ab", "suffix": "yz"}
    answer = client.completions.create(**asked, extra_body=how)
    assert answer.choices[0].text == want.text
    assert answer.usage is not None and answer.usage.prompt_tokens == want.usage.prompt_tokens
    assert "".join(deltas(web.complete(**asked, **how, stream=True))) == want.text
    with pytest.raises(openai.BadRequestError, match="policy blocks lets its canvas end"):
        client.completions.create(**asked, extra_body={"policy": "blocks"})


def test_a_template_is_filled_by_both_endpoints(web: Web, llm: LLM) -> None:
    template, own = "a___b___{2}c", {"policy": "fixed", "initial_length": 4}
    answer, want = web.complete(template=template, **own), llm.fill(template, own)
    assert (text_of(answer), answer.json()["choices"][0]["gaps"]) == (want.text, want.gaps)
    want = llm.fill(template, own, prompt="hello")
    assert text_of(web.chat("hello", template=template, **own)) == want.text
