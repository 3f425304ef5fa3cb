"""OpenAI's own client, and curl, against a real server process: answers equal `LLM.generate`."""

import json
import subprocess
from typing import Any

import openai
import pytest

from rho_eos import LLM, DecodeParams, Output
from tests.server.conftest import MODEL, Process

SHORT: dict[str, Any] = {"initial_length": 16}


def expected(llm: LLM, text: str, **params: Any) -> Output:
    merged = {"initial_length": 16, "max_new_tokens": 48} | params
    return llm.generate([text], DecodeParams(**merged))[0]


def ask(client: openai.OpenAI, text: str, **fields: Any) -> Any:
    extra = SHORT | fields.pop("extra_body", {})
    return client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": text}],
        extra_body=extra,
        **({"max_tokens": 48} | fields),
    )


def test_a_chat_answer_is_what_the_library_gives(client: openai.OpenAI, llm: LLM) -> None:
    want = expected(llm, "hello")
    answer = ask(client, "hello")
    assert answer.choices[0].message.content == want.text
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == want.finish_reason
    assert answer.object == "chat.completion"
    assert answer.model == MODEL


def test_usage_says_what_it_cost(client: openai.OpenAI, llm: LLM) -> None:
    want = expected(llm, "hello").usage
    usage = ask(client, "hello").usage
    assert usage.prompt_tokens == want.prompt_tokens
    assert usage.completion_tokens == want.e_token
    assert usage.total_tokens == want.prompt_tokens + want.e_token
    assert usage.rho_eos == {
        "n_token": want.n_token,
        "nfe": want.nfe,
        "positions_evaluated": want.positions_evaluated,
        "positions_exact": want.positions_evaluated,
        "refreshes": want.nfe,
        "expansions": want.expansions,
        "contractions": want.contractions,
        "tokens_per_forward": pytest.approx(want.tokens_per_forward),
    }


def test_streamed_deltas_join_to_the_answer(client: openai.OpenAI, llm: LLM) -> None:
    want = expected(llm, "hello")
    chunks = list(ask(client, "hello", stream=True))
    assert [c.choices[0].delta.role for c in chunks].count("assistant") == 1
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == want.text
    reasons = [c.choices[0].finish_reason for c in chunks]
    assert reasons == [None] * (len(chunks) - 1) + [want.finish_reason]
    assert len(chunks) > 3, "the text came in one piece"
    assert len({c.id for c in chunks}) == 1
    assert all(c.usage is None for c in chunks)


def test_a_stream_ends_with_the_usage_if_asked(client: openai.OpenAI) -> None:
    whole = ask(client, "hello").usage
    *chunks, last = ask(client, "hello", stream=True, stream_options={"include_usage": True})
    assert all(c.usage is None and c.choices for c in chunks)
    assert last.choices == []
    assert last.usage.to_dict() == whole.to_dict()


def test_policies_are_chosen_per_request(client: openai.OpenAI, llm: LLM) -> None:
    for params in (
        {"policy": "fixed", "initial_length": 24, "early_stop": False},
        {"policy": "fixed", "initial_length": 24, "commit": "quota", "steps": 6},
        {"policy": "daedal", "threshold": 0.5},
        {"preset": "sym", "rho_low": 0.1, "block_length": None, "expansion": "constant"},
    ):
        want = expected(llm, "a question", **params)
        answer = ask(client, "a question", extra_body=params)
        assert answer.choices[0].message.content == want.text, params
        assert answer.usage.rho_eos["nfe"] == want.usage.nfe, params
        assert answer.usage.rho_eos["n_token"] == want.usage.n_token, params


def test_n_texts_have_seeds_in_a_row(client: openai.OpenAI, llm: LLM) -> None:
    warm = ask(client, "hello", n=3, seed=7, temperature=2.0)
    wants = [expected(llm, "hello", seed=7 + i, temperature=2.0) for i in range(3)]
    assert [c.message.content for c in warm.choices] == [want.text for want in wants]
    assert [c.index for c in warm.choices] == [0, 1, 2]
    assert len({want.text for want in wants}) == 3
    assert warm.usage.prompt_tokens == wants[0].usage.prompt_tokens  # the prompt counts once
    assert warm.usage.completion_tokens == sum(want.usage.e_token for want in wants)
    cold = ask(client, "hello", n=2)
    assert cold.choices[0].message.content == cold.choices[1].message.content


def test_top_p_and_top_k_are_honoured(client: openai.OpenAI, llm: LLM) -> None:
    warm: dict[str, Any] = {"seed": 7, "temperature": 2.0}
    free = expected(llm, "hello", **warm).text
    for narrow in ({"top_p": 0.3}, {"top_k": 1}):
        want = expected(llm, "hello", **warm, **narrow).text
        answer = ask(client, "hello", **warm, extra_body=narrow)
        assert answer.choices[0].message.content == want != free


def test_streams_of_several_texts_keep_them_apart(client: openai.OpenAI, llm: LLM) -> None:
    texts = ["", ""]
    for chunk in ask(client, "hello", n=2, seed=3, temperature=2.0, stream=True):
        choice = chunk.choices[0]
        texts[choice.index] += choice.delta.content or ""
    assert texts == [expected(llm, "hello", seed=3 + i, temperature=2.0).text for i in range(2)]


def test_stop_strings_end_the_text_and_are_not_in_it(client: openai.OpenAI, llm: LLM) -> None:
    text = expected(llm, "hello").text
    stop = text[len(text) // 2 :][:2]
    want = text[: text.index(stop)]
    for stream in (False, True):
        answer = ask(client, "hello", stop=[stop], stream=stream)
        got = (
            "".join(c.choices[0].delta.content or "" for c in answer)
            if stream
            else answer.choices[0].message.content
        )
        assert got == want


def test_completions_take_texts_and_token_ids_as_they_are(client: openai.OpenAI, llm: LLM) -> None:
    params = DecodeParams(initial_length=16, max_new_tokens=32)
    ids = llm.tokenizer.encode("two", add_special_tokens=False)
    wants = llm.generate(["one", "two"], params, raw=True)
    create = client.completions.create
    answer = create(model=MODEL, prompt=["one", "two"], max_tokens=32, extra_body=SHORT)
    assert [choice.text for choice in answer.choices] == [want.text for want in wants]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == sum(want.usage.prompt_tokens for want in wants)
    by_ids = create(model=MODEL, prompt=ids, max_tokens=32, extra_body=SHORT)
    assert by_ids.choices[0].text == wants[1].text
    stream = create(model=MODEL, prompt="one", max_tokens=32, stream=True, extra_body=SHORT)
    assert "".join(chunk.choices[0].text for chunk in stream) == wants[0].text


def test_max_tokens_below_the_first_length_just_shortens_it(client: openai.OpenAI) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        answer = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "hello"}], **{name: 10}
        )
        assert answer.usage is not None
        assert answer.usage.rho_eos["n_token"] <= 10  # type: ignore[attr-defined]


def test_special_tokens_spelled_out_by_a_user_stay_text(client: openai.OpenAI) -> None:
    """One token per byte: a special token that was parsed would count as one, not as ten."""
    plain = ask(client, "xxxxxxxxxx").usage.prompt_tokens
    assert ask(client, "<|eot_id|>").usage.prompt_tokens == plain


def test_a_conversation_may_hold_parts_and_earlier_answers(client: openai.OpenAI, llm: LLM) -> None:
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hi"},
        {"role": "user", "content": "and now?"},
    ]
    params = DecodeParams(initial_length=16, max_new_tokens=32)
    want = llm.chat(messages, params).text
    in_parts = [
        {**m, "content": [{"type": "text", "text": m["content"]}], "refusal": None}
        for m in messages
    ]
    for sent in (messages, in_parts):
        answer = client.chat.completions.create(
            model=MODEL,
            messages=sent,  # type: ignore[arg-type]
            max_tokens=32,
            extra_body=SHORT,
        )
        assert answer.choices[0].message.content == want


def test_models_can_be_listed_and_named(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")


def test_errors_are_the_clients_own_kinds(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-4'"):
        client.chat.completions.create(model="gpt-4", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.BadRequestError, match=r"rho_low is 0\.9") as refused:
        ask(client, "x", extra_body={"rho_low": 0.9})
    assert refused.value.request_id


def test_curl_gets_an_answer_and_a_stream(server: Process, llm: LLM) -> None:
    want = expected(llm, "hello").text
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 48}
    whole = _curl(server, body | SHORT)
    assert json.loads(whole)["choices"][0]["message"]["content"] == want
    lines = _curl(server, body | SHORT | {"stream": True}).strip().split("\n\n")
    assert lines[-1] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == want


def _curl(server: Process, body: dict[str, Any]) -> str:
    url = f"{server.url}/v1/chat/completions"
    header = "content-type: application/json"
    command = ["curl", "-sSN", "--noproxy", "*", url, "-H", header, "-d", json.dumps(body)]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def test_a_completion_with_a_suffix_is_what_stands_between(client: openai.OpenAI, llm: LLM) -> None:
    how = {"policy": "fixed", "initial_length": 6}
    want = llm.infill("ab", "yz", how)
    asked = {"model": MODEL, "prompt": "ab", "suffix": "yz"}
    answer = client.completions.create(**asked, extra_body=how)
    assert answer.choices[0].text == want.text
    assert answer.usage is not None and answer.usage.prompt_tokens == want.usage.prompt_tokens
    chunks = client.completions.create(**asked, extra_body=how, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == want.text
    found = client.completions.create(**asked)  # no policy: the length is found
    assert found.choices[0].text == llm.infill("ab", "yz").text
    with pytest.raises(openai.BadRequestError, match="policy blocks lets its canvas end"):
        client.completions.create(**asked, extra_body={"policy": "blocks"})


def test_a_template_is_filled_by_both_endpoints(client: openai.OpenAI, llm: LLM) -> None:
    how = {"policy": "fixed", "initial_length": 4, "template": "a___b___{2}c"}
    own = {"policy": "fixed", "initial_length": 4}
    want = llm.fill("a___b___{2}c", own)
    answer = client.post(
        "/completions", body={"model": MODEL, **how}, cast_to=openai.types.Completion
    )
    assert answer.choices[0].text == want.text
    assert answer.choices[0].model_extra == {"gaps": want.gaps}
    want = llm.fill("a___b___{2}c", own, prompt="hello")
    answer = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "hello"}], extra_body=how
    )
    assert answer.choices[0].message.content == want.text


def test_the_steps_of_a_template_start_from_its_text(client: openai.OpenAI) -> None:
    body = {
        "model": MODEL,
        "template": "a___b___{2}c",
        "policy": "fixed",
        "initial_length": 4,
        "stream": True,
        "stream_mode": "denoise",
    }
    with client._client.stream(
        "POST", "completions", json=body, headers={"Authorization": "Bearer x"}
    ) as answer:
        lines = [line[6:] for line in answer.iter_lines() if line.startswith("data: {")]
    start = json.loads(lines[0])
    assert start["length"] == 7 and start["given"] == [[4, "b", False]]
