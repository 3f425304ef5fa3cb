"""Completions with echo, by OpenAI's client from a real server: numbers are the library's."""

import threading
import time
from typing import Any

import openai
import pytest

from rho_eos import LLM
from tests.server.clients import Web
from tests.server.conftest import MODEL, Process

TEXT = "The sun rises."
ECHO: dict[str, Any] = {"echo": True, "logprobs": 0, "max_tokens": 0}


def scored(llm: LLM, **how: Any) -> Any:
    ids = llm.preparer.encoder.prompt(TEXT, raw=True)
    [score] = llm.score(({"prompt_token_ids": ids[:1]}, ids[1:]), **how)
    return score


@pytest.mark.parametrize("method", ["chain", "bound", "pseudo"])
def test_each_token_has_the_librarys_number(client: openai.OpenAI, llm: LLM, method: Any) -> None:
    want = scored(llm, method=method, draws=16, seed=3)
    extra = {"score_method": method, "score_draws": 16}
    answer = client.completions.create(model=MODEL, prompt=TEXT, seed=3, extra_body=extra, **ECHO)
    [choice] = answer.choices
    assert choice.text == TEXT and choice.finish_reason == "length"
    assert choice.logprobs.token_logprobs[0] is None
    assert choice.logprobs.token_logprobs[1:] == pytest.approx(want.token_logprobs, abs=1e-4)
    assert "".join(choice.logprobs.tokens) == TEXT
    assert choice.score["logprob"] == pytest.approx(want.logprob, abs=1e-4)
    assert choice.score["standard_error"] == pytest.approx(want.standard_error, abs=1e-4)
    assert answer.usage.completion_tokens == 0
    assert answer.usage.rho_eos["nfe"] == want.forwards


def test_the_likeliest_tokens_of_each_place(client: openai.OpenAI, llm: LLM) -> None:
    asked = {**ECHO, "logprobs": 3}
    [choice] = client.completions.create(model=MODEL, prompt=TEXT, **asked).choices
    logprobs = choice.logprobs
    assert logprobs.top_logprobs[0] is None
    for own, top in zip(logprobs.token_logprobs[1:], logprobs.top_logprobs[1:], strict=True):
        best = max(top.values())
        assert len(top) <= 3 and own <= best + 1e-6


def test_several_texts_each_for_itself(client: openai.OpenAI, llm: LLM) -> None:
    answer = client.completions.create(model=MODEL, prompt=["One two", TEXT], **ECHO)
    found = answer.choices[1].logprobs.token_logprobs[1:]
    assert found == pytest.approx(scored(llm, method="chain").token_logprobs, abs=1e-4)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 8}, "echo"),
        ({"logprobs": None}, "echo"),
        ({"stream": True}, "stream"),
        ({"suffix": "x"}, "suffix"),
        ({"n": 2}, "n"),
        ({"logprobs": 1, "score_method": "bound"}, "logprobs"),
        ({"score_method": "guess"}, "score_method"),
        ({"score_draws": 0}, "score_draws"),
        ({"seed": -1}, "seed"),
    ],
)
def test_what_does_not_go_with_it(web: Web, fields: dict[str, Any], param: str) -> None:
    answer = web.complete(prompt=TEXT, **{**ECHO, **fields})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_a_text_that_is_too_long(web: Web) -> None:
    answer = web.complete(prompt="x" * 600, **ECHO)
    assert answer.status_code == 400 and "512" in answer.json()["error"]["message"]


def test_a_model_in_blocks_has_the_chain_only(block_server: Process, block_llm: LLM) -> None:
    choice = block_server.web.complete(prompt=TEXT, **ECHO).json()["choices"][0]
    found = choice["logprobs"]["token_logprobs"][1:]
    assert found == pytest.approx(scored(block_llm, method="chain").token_logprobs, abs=1e-4)
    answer = block_server.web.complete(prompt=TEXT, score_method="bound", **ECHO)
    assert answer.status_code == 400 and "block" in answer.json()["error"]["message"]


def test_one_that_takes_long_stops_nobody_and_ends_at_its_deadline(web: Web) -> None:
    answers: list[Any] = []
    slow = {"prompt": "x" * 500, **ECHO, "deadline_seconds": 2.0}
    scoring = threading.Thread(target=lambda: answers.append(web.complete(**slow)))
    scoring.start()
    time.sleep(0.2)
    assert web.chat("hello", initial_length=8, max_tokens=8).status_code == 200
    scoring.join(60)
    assert answers[0].status_code in (200, 504)
    assert web.complete(prompt=TEXT, **ECHO).status_code == 200
