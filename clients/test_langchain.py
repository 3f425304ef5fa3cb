"""langchain-openai with what it sends by itself."""

import asyncio
from typing import Literal

import pytest
from conftest import PROBLEM, is_right
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel


@pytest.fixture
def chat(url: str) -> ChatOpenAI:
    return ChatOpenAI(base_url=url, api_key="unused", model="tiny", max_retries=0)


def test_an_answer_a_stream_and_a_batch(chat: ChatOpenAI) -> None:
    whole = chat.invoke(PROBLEM)
    assert is_right(whole.text)
    assert whole.usage_metadata["output_tokens"] > 0
    assert "".join(chunk.text for chunk in chat.stream(PROBLEM)) == whole.text
    assert [each.text for each in chat.batch([PROBLEM, PROBLEM])] == [whole.text] * 2
    assert asyncio.run(chat.ainvoke(PROBLEM)).text == whole.text


def test_a_conversation_with_names_and_earlier_answers(chat: ChatOpenAI) -> None:
    first = chat.invoke(PROBLEM)
    talk = [SystemMessage("s"), HumanMessage(PROBLEM, name="mia"), first, HumanMessage(PROBLEM)]
    assert isinstance(chat.invoke(talk).text, str)


def test_logprobs(chat: ChatOpenAI) -> None:
    answer = chat.bind(logprobs=True, top_logprobs=2).invoke(PROBLEM)
    tokens = answer.response_metadata["logprobs"]["content"]
    assert "".join(token["token"] for token in tokens) == answer.text
    assert all(len(token["top_logprobs"]) == 2 for token in tokens)


def test_the_old_completions(url: str) -> None:
    """It sends every field it knows, with its own temperature and length."""
    model = OpenAI(base_url=url, api_key="unused", model="tiny", max_retries=0)
    assert isinstance(model.invoke("1) buys 6."), str)
    assert isinstance("".join(model.stream("1) buys 6.")), str)


def test_an_answer_of_a_class(chat: ChatOpenAI) -> None:
    """The values are nonsense: the embedded model knows no JSON. The class checks their kinds."""

    class Fruit(BaseModel):
        name: str
        count: int
        colour: Literal["red", "green"]

    assert isinstance(chat.with_structured_output(Fruit).invoke(PROBLEM), Fruit)
