"""Answers of a form for clients that ask for them in their own ways: classes, tools, agents."""

import json
from typing import Literal

import openai
import pytest
from conftest import PROBLEM
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field


class Item(BaseModel):
    what: str = Field(max_length=20)
    count: int = Field(ge=0, le=99)


class Invoice(BaseModel):
    """What is to be paid."""

    number: int
    currency: Literal["EUR", "USD"]
    items: list[Item] = Field(min_length=1, max_length=3)
    note: str | None = None


@tool
def weather(city: Literal["Oslo", "Rome"], days: int = 1) -> str:
    """The weather in a city."""
    return f"{days} days of rain in {city}"


@pytest.fixture
def chat(url: str) -> ChatOpenAI:
    return ChatOpenAI(base_url=url, api_key="unused", model="tiny", max_retries=0)


def test_openai_parses_a_nested_object(url: str) -> None:
    client = openai.OpenAI(base_url=url, api_key="unused", max_retries=0)
    asked = {"model": "tiny", "messages": [{"role": "user", "content": PROBLEM}]}
    answer = client.chat.completions.parse(**asked, response_format=Invoice)
    assert isinstance(answer.choices[0].message.parsed, Invoice)
    with client.chat.completions.stream(**asked, response_format=Invoice) as stream:
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Invoice)


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_langchains_structured_output(chat: ChatOpenAI, method: str) -> None:
    if method == "json_mode":  # any object: whether it is the class's is the model's business
        raw = chat.with_structured_output(Invoice, method=method, include_raw=True).invoke(PROBLEM)
        assert isinstance(json.loads(raw["raw"].content), dict)
    else:
        assert isinstance(
            chat.with_structured_output(Invoice, method=method).invoke(PROBLEM), Invoice
        )


def test_langchains_tools_and_the_turn_after_them(chat: ChatOpenAI) -> None:
    bound = chat.bind_tools([weather], tool_choice="any")
    called = bound.invoke(PROBLEM)
    [call] = called.tool_calls
    assert call["name"] == "weather" and call["args"]["city"] in ("Oslo", "Rome")
    said = [
        HumanMessage(PROBLEM),
        called,
        ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"]),
    ]
    assert isinstance(chat.bind_tools([weather]).invoke(said).text, str)
    whole = None
    for chunk in bound.stream(PROBLEM):
        whole = chunk if whole is None else whole + chunk
    assert whole is not None and whole.tool_calls[0]["args"] == call["args"]
