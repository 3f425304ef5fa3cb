"""Answers of a form over HTTP: for OpenAI's client, for vLLM's fields, and as calls of tools.

The oracles are `jsonschema` and, for OpenAI's client, pydantic.
"""

import json
from enum import Enum
from typing import Any, Literal

import jsonschema
import openai
import pytest
from pydantic import BaseModel, Field

from tests.server.clients import Web, deltas, error_of, events, text_of
from tests.server.conftest import MODEL

MESSAGES: list[Any] = [{"role": "user", "content": "Who is it?"}]


class Mood(Enum):
    good = "very good"
    none = "so-so"


class Item(BaseModel):
    what: str = Field(max_length=12)
    price: float = Field(ge=0, le=99.5)


class Invoice(BaseModel):
    number: int = Field(gt=0)
    paid: bool
    mood: Mood
    side: Literal["left", "right"]
    items: list[Item] = Field(min_length=1, max_length=2)
    note: str | None = Field(max_length=8)


def asked(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}


def test_parse_gives_a_nested_object_of_the_class_and_a_stream_the_same(
    client: openai.OpenAI, web: Web
) -> None:
    answer = client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=Invoice)
    message = answer.choices[0].message
    assert isinstance(message.parsed, Invoice)
    assert answer.choices[0].finish_reason == "stop"
    said = [*MESSAGES, message.model_dump(mode="json"), *MESSAGES]  # and it can be sent back
    assert web.chat(messages=said, max_tokens=8).status_code == 200
    schema = Invoice.model_json_schema()
    told = web.chat(messages=MESSAGES, response_format=asked(schema), stream=True)
    assert "".join(deltas(told)) == message.content


def test_any_object_and_the_fields_of_vllm(web: Web) -> None:
    whole = web.chat(response_format={"type": "json_object"}, max_tokens=200)
    assert isinstance(json.loads(text_of(whole)), dict)
    schema = {"type": "array", "items": {"enum": [1, 2]}, "minItems": 2, "maxItems": 3}
    for given in (schema, json.dumps(schema)):
        text = text_of(web.complete(prompt="a", guided_json=given))
        jsonschema.validate(json.loads(text), schema)
    assert text_of(web.chat(guided_choice=["yes", "no"])) in ("yes", "no")
    assert set(text_of(web.complete(prompt="a", guided_regex="[xy]{3}"))) <= {"x", "y"}


# ── tools ────────────────────────────────────────────────────────────────────────────────────

WEATHER = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", 'a "b"']}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city", "days"],
}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "now", "description": "the time"}},
]
BY_NAME = {"type": "function", "function": {"name": "weather"}}


def test_a_call_of_a_tool_and_the_conversation_after_it(client: openai.OpenAI) -> None:
    create: Any = client.chat.completions.create
    first = create(model=MODEL, messages=MESSAGES, tools=TOOLS, tool_choice=BY_NAME).choices[0]
    assert first.finish_reason == "tool_calls" and first.message.content is None
    [call] = first.message.tool_calls
    assert call.function.name == "weather"
    jsonschema.validate(json.loads(call.function.arguments), WEATHER)
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    said = [*MESSAGES, first.message.model_dump(), result]
    again = create(model=MODEL, messages=said, tools=TOOLS, tool_choice="none", max_tokens=16)
    assert not again.choices[0].message.tool_calls


def test_a_streamed_call_is_the_same(client: openai.OpenAI) -> None:
    asked: Any = {"model": MODEL, "messages": MESSAGES, "tools": TOOLS, "tool_choice": "required"}
    [whole] = client.chat.completions.create(**asked).choices[0].message.tool_calls
    with client.chat.completions.stream(**asked) as stream:
        final = stream.get_final_completion().choices[0]
    [call] = final.message.tool_calls
    assert (call.function.name, call.function.arguments) == (
        whole.function.name,
        whole.function.arguments,
    )
    assert final.finish_reason == "tool_calls"


def test_where_the_model_may_choose_it_says_something_or_calls(web: Web) -> None:
    for seed in range(3):
        ask = {"tools": TOOLS, "temperature": 2.0, "seed": seed, "max_tokens": 64}
        [choice] = web.chat(**ask).json()["choices"]
        message = choice["message"]
        if message.get("tool_calls"):
            assert message["content"] is None and choice["finish_reason"] == "tool_calls"
        else:
            assert not message["content"].startswith("{")
            told = web.chat(**ask, stream=True)
            assert "".join(deltas(told)) == message["content"]
            assert events(told.text)[-1] == "[DONE]"


# ── what is refused, and how ─────────────────────────────────────────────────────────────────

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("fields", "says", "param"),
    [
        ({"response_format": {"type": "json_schema"}}, "json_schema is missing", "response_format"),
        ({"response_format": asked({"not": {}})}, "has type None", "response_format"),
        ({"response_format": {"type": "structural_tag"}}, "structural_tag", None),
        ({"guided_json": "{"}, "no JSON", "guided_json"),
        ({"guided_regex": "a("}, "cannot be compiled", "guided_regex"),
        ({"guided_grammar": "root ::= x"}, "guided_grammar", "guided_grammar"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "an answer has one form", None),
        ({"guided_choice": ["aaaaaa"], "max_tokens": 2}, "has 6 tokens", "max_tokens"),
        ({"guided_regex": "a", "template": "___ b"}, "template does not go", "template"),
        ({"tool_choice": "required"}, "goes with tools", "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {**BY_NAME, "function": {"name": "x"}}}, "'x'", None),
        ({"tools": TOOLS, "guided_regex": "a"}, "an answer has one form", None),
    ],
    ids=str,
)
def test_what_cannot_be_promised(
    web: Web, fields: dict[str, Any], says: str, param: str | None
) -> None:
    error = error_of(web.chat(**fields))
    message = error["message"] + str(error["param"])
    assert says in message or error["param"] == "response_format.type"
    assert param is None or error["param"] == param
