"""Answers in JSON: whatever a model writes, the answer parses and is valid for its schema.

The oracle is `jsonschema`, and for OpenAI's client pydantic.
"""

import json
import random
from enum import Enum
from typing import Any, Literal

import httpx
import jsonschema
import numpy as np
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from rho_eos import LLM
from rho_eos.decoding.canvas import Canvas, Positions
from rho_eos.text.json_schema import Property
from tests.server.clients import Web, deltas, error_of
from tests.server.conftest import MODEL

MESSAGES: list[Any] = [{"role": "user", "content": "Who is it?"}]


class Mood(Enum):
    good = "very good"
    bad = "very bad"
    none = "so-so"


class Person(BaseModel):
    name: str
    age: int
    height: float
    alive: bool
    mood: Mood
    side: Literal["left", "right"]


def asked(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}


def flat(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def checked(text: str, schema: dict[str, Any]) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    value = json.loads(text, parse_constant=refuse)
    jsonschema.Draft202012Validator(schema).validate(value)
    assert list(value) == list(schema["properties"])
    return value


def chat(web: Web, schema: dict[str, Any], **fields: Any) -> httpx.Response:
    return web.chat(**{"messages": MESSAGES, "response_format": asked(schema), **fields})


def test_parse_gives_an_object_of_the_class_and_a_stream_the_same(
    client: openai.OpenAI, web: Web
) -> None:
    answer = client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=Person)
    message = answer.choices[0].message
    assert isinstance(message.parsed, Person)
    assert answer.choices[0].finish_reason == "stop"
    assert message.content is not None
    assert list(json.loads(message.content)) == list(Person.model_fields)
    said = [*MESSAGES, message.model_dump(mode="json"), *MESSAGES]  # and it can be sent back
    assert web.chat(messages=said, max_tokens=8).status_code == 200
    schema = Person.model_json_schema()
    [text] = deltas(chat(web, schema, stream=True))
    assert checked(text, schema) == json.loads(message.content)


# ── always valid ─────────────────────────────────────────────────────────────────────────────

WORDS = ["red", "blue", "bluer", "", "a b", 'say "hi"', "back\\slash", "line\nbreak", "naïve 你"]
KINDS: list[Any] = [
    lambda dice: {"type": "string"},
    lambda dice: {"type": "integer"},
    lambda dice: {"type": "number"},
    lambda dice: {"type": "boolean"},
    lambda dice: {"enum": dice.sample(WORDS, 4)},
    lambda dice: {"enum": [1, 12, 123, -1, 1.5, True, None, "1"]},
    lambda dice: {"const": dice.choice(WORDS)},
]
NAMES = [*WORDS, "___", "<|mdm_mask|>", "{x}", "name", "___{12}"]
WAYS: list[dict[str, Any]] = [
    {},
    {"temperature": 3.0},
    {"policy": "fixed"},
    {"policy": "fixed", "initial_length": 3, "temperature": 3.0},
    {"policy": "fixed", "initial_length": 5, "commit": "quota", "steps": 1, "temperature": 9.0},
    {"policy": "cal", "evidence": "confidence", "max_tokens": 200},
    {"cache": "window"},
    {"cfg_scale": 1.0, "n": 2},
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_any_flat_schema_in_any_way(web: Web, way: dict[str, Any]) -> None:
    dice = random.Random(str(way))
    for seed in range(3):
        names = dice.sample(NAMES, dice.randint(1, 4))
        properties = {name: dice.choice(KINDS)(dice) for name in names}
        schema = flat(**properties, last={"type": dice.choice(["number", "integer", "string"])})
        answer = chat(web, schema, **({"seed": seed} | way))
        assert answer.status_code == 200, answer.text
        for choice in answer.json()["choices"]:
            checked(choice["message"]["content"], schema)


@given(st.text() | st.text(alphabet='0123456789-. "\\un\n'))
def test_whatever_stands_in_a_gap(text: str) -> None:
    for kind in ("string", "integer", "number"):
        schema = flat(x={"type": kind})
        checked(f'{{"x": {Property("x", kind).value(text)}}}', schema)
    choice = Property("x", "choice", ("1", "12", '"a"', "null"))
    assert choice.value(text) in choice.options


# ── and what the model wants, where it may ───────────────────────────────────────────────────


class Wants:
    """A model that has made up its mind: these texts, one byte a token, in these gaps."""

    def __init__(self, llm: LLM, *texts: str) -> None:
        self.ids = [llm.tokenizer.encode(text, add_special_tokens=False) for text in texts]

    def __call__(self, _id: str, canvas: Canvas, positions: Positions, logits: Any) -> Any:
        assert canvas.gaps is not None
        for gap, ids in enumerate(self.ids):
            own = np.flatnonzero(canvas.gaps == gap)
            for at, token in zip(own, ids, strict=False):
                logits[np.flatnonzero(positions == at), token] += 1000
        return logits


def filled(llm: LLM, schema: dict[str, Any], *texts: str, **params: Any) -> Any:
    wants, how = Wants(llm, *texts), {"policy": "fixed", **params}
    [output] = llm.generate([MESSAGES], how, schema=schema, processors=[wants])
    return checked(output.text, schema)


def test_what_the_model_wants_is_what_it_gets(llm: LLM) -> None:
    schema = flat(
        name={"type": "string"},
        age={"type": "integer"},
        height={"type": "number"},
        alive={"type": "boolean"},
        mood={"enum": ["very good", "very bad", "so-so"]},
    )
    texts = (r'A\nn\"", "', " -12", " 1.5", " false", ' "very bad"')
    value = filled(llm, schema, *texts)
    wanted = {"name": 'A\nn"', "age": -12, "height": 1.5, "alive": False, "mood": "very bad"}
    assert value == wanted
    # Everything at once: what was not decided yet is anything, but valid.
    filled(llm, schema, *texts, commit="quota", steps=1)


def test_a_short_number_in_a_long_gap_and_one_that_is_none(llm: LLM) -> None:
    schema = flat(a={"type": "integer"}, b={"type": "integer"}, c={"type": "number"})
    assert filled(llm, schema, " 7  ", "7   ", "-1.5") == {"a": 7, "b": 7, "c": -1.5}
    for odd in ("....", "abcd", "1.2.", "    ", "-.5-"):
        filled(llm, schema, odd, odd, odd)


# ── what is refused, and how ─────────────────────────────────────────────────────────────────

TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({}, "type None"),
        ({"type": "array", "items": TEXT}, "'items' is not supported"),
        (flat(a={"type": "array", "items": TEXT}), "property 'a' has type 'array'"),
        (flat(a={"anyOf": [TEXT, {"type": "null"}]}), "'anyOf' is not supported in property 'a'"),
        (flat(a={"type": "integer", "minimum": 0}), "'minimum' is not supported in property 'a'"),
        (flat(a={}), "neither a type nor an enum"),
        (flat(a={"enum": ["x"], "type": "integer"}), "'x', which is no integer"),
        (flat(a={"enum": ["x" * 300]}), "more than 200 characters"),
        (flat(a={"$ref": "https://example.org/a"}), "not in the schema"),
        (
            flat(a={"$ref": "#/$defs/b"}) | {"$defs": {"b": {"$ref": "#/$defs/b"}}},
            "refers to others without end",
        ),
        (flat(a=TEXT) | {"required": ["b"]}, "required names 'b'"),
        (flat(**{f"p{i}": TEXT for i in range(101)}), "101 properties"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_promised_is_refused(web: Web, schema: dict[str, Any], says: str) -> None:
    error = error_of(chat(web, schema))
    assert says in error["message"] and error["param"] == "response_format"


@pytest.mark.parametrize(
    ("fields", "says", "param"),
    [
        ({"response_format": {"type": "json_object"}}, "send a json_schema", "response_format"),
        ({"response_format": {"type": "json_schema"}}, "json_schema is missing", "response_format"),
        ({"logprobs": True}, "logprobs does not go with", "logprobs"),
        ({"max_tokens": 2}, "max_tokens is 2, but", "max_tokens"),
        ({"policy": "rho-eos"}, "take one of", None),
    ],
    ids=str,
)
def test_what_does_not_go_with_it(
    web: Web, fields: dict[str, Any], says: str, param: str | None
) -> None:
    error = error_of(chat(web, flat(a=TEXT), **fields))
    assert says in error["message"] and error["param"] == param
