"""Answers in JSON: whatever a model writes, the answer parses and is valid for its schema.

The oracle is `jsonschema`, and for OpenAI's client pydantic.
"""

import asyncio
import json
import random
from collections.abc import Coroutine, Iterator
from enum import Enum
from typing import Any, Literal, TypeVar

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
from rho_eos.server.app import create_app
from rho_eos.server.config import ServerConfig
from rho_eos.server.service import Service
from rho_eos.text.json_schema import Property
from tests.server.conftest import MODEL, Process

MESSAGES: list[Any] = [{"role": "user", "content": "Who is it?"}]
T = TypeVar("T")


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


@pytest.fixture
def http(server: Process) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=120, trust_env=False) as client:
        yield client


def chat(http: httpx.Client, schema: dict[str, Any], **fields: Any) -> httpx.Response:
    body = {"messages": MESSAGES, "response_format": asked(schema), **fields}
    return http.post("/v1/chat/completions", json=body)


# ── with OpenAI's client ─────────────────────────────────────────────────────────────────────


def test_parse_gives_an_object_of_the_class(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=Person)
    message = answer.choices[0].message
    assert isinstance(message.parsed, Person)
    assert answer.choices[0].finish_reason == "stop"
    assert message.content is not None
    assert list(json.loads(message.content)) == list(Person.model_fields)
    said = [*MESSAGES, message.model_dump(mode="json"), *MESSAGES]  # and it can be sent back
    again = client.chat.completions.create(model=MODEL, messages=said, max_tokens=8)
    assert again.choices[0].finish_reason


def test_create_and_stream_give_the_same(client: openai.OpenAI) -> None:
    schema = Person.model_json_schema()
    create = client.chat.completions.create
    whole = create(model=MODEL, messages=MESSAGES, response_format=asked(schema))  # type: ignore[call-overload]
    text = whole.choices[0].message.content
    checked(text, schema)
    chunks = list(
        create(model=MODEL, messages=MESSAGES, response_format=asked(schema), stream=True)  # type: ignore[call-overload]
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text


def test_on_the_embedded_model() -> None:
    service = Service(LLM("tiny"), ServerConfig())

    async def parsed() -> Any:
        transport = httpx.ASGITransport(create_app(service))
        web = httpx.AsyncClient(transport=transport, timeout=120)
        url = "http://127.0.0.1:8000/v1"
        async with (
            service.running(),
            openai.AsyncOpenAI(base_url=url, api_key="x", http_client=web) as client,
        ):
            return await client.chat.completions.parse(
                model="tiny", messages=MESSAGES, response_format=Person, n=2, temperature=1, seed=1
            )

    choices = asyncio.run(_in_time(parsed())).choices
    assert len(choices) == 2 and all(isinstance(each.message.parsed, Person) for each in choices)


async def _in_time(work: Coroutine[Any, Any, T]) -> T:
    async with asyncio.timeout(120):
        return await work


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
def test_any_flat_schema_in_any_way(http: httpx.Client, way: dict[str, Any]) -> None:
    dice = random.Random(str(way))
    for seed in range(3):
        names = dice.sample(NAMES, dice.randint(1, 4))
        properties = {name: dice.choice(KINDS)(dice) for name in names}
        schema = flat(**properties, last={"type": dice.choice(["number", "integer", "string"])})
        answer = chat(http, schema, **({"seed": seed} | way))
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


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('Ann", "x": 1', "Ann"),
        (r"a\nb\"c\"", 'a\nb"c"'),
        ("a\nb", "a\nb"),
        (r"C:\x", r"C:\x"),
        ("\\", ""),
        (r"\ud800", r"\ud800"),
    ],
)
def test_a_string_ends_at_its_quote_and_its_escapes_are_read(text: str, value: str) -> None:
    assert json.loads(Property("x", "string").value(text)) == value


# ── and what the model wants, where it may ───────────────────────────────────────────────────


class Wants:
    """A model that has made up its mind: these texts, one byte a token, in these gaps."""

    def __init__(self, llm: LLM, *texts: str) -> None:
        self.ids = [llm.tokenizer.encode(text, add_special_tokens=False) for text in texts]

    def __call__(self, canvas: Canvas, positions: Positions, logits: Any) -> Any:
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


@pytest.mark.parametrize("steps", [None, 1])
def test_what_the_model_wants_is_what_it_gets(llm: LLM, steps: int | None) -> None:
    schema = flat(
        name={"type": "string"},
        age={"type": "integer"},
        height={"type": "number"},
        alive={"type": "boolean"},
        mood={"enum": ["very good", "very bad", "so-so"]},
    )
    texts = ('Ann", "a', " -12", " 1.5", " false", ' "very bad"')
    if steps is None:
        value = filled(llm, schema, *texts)
        assert value == {
            "name": "Ann",
            "age": -12,
            "height": 1.5,
            "alive": False,
            "mood": "very bad",
        }
    else:  # everything at once: what was not decided yet is anything, but valid
        filled(llm, schema, *texts, commit="quota", steps=1)


def test_a_short_number_in_a_long_gap_and_one_that_is_none(llm: LLM) -> None:
    schema = flat(a={"type": "integer"}, b={"type": "integer"}, c={"type": "number"})
    assert filled(llm, schema, " 7  ", "7   ", "-1.5") == {"a": 7, "b": 7, "c": -1.5}
    for odd in ("....", "----", "abcd", "1.2.", "    ", "1 2 ", '"1",', "-.5-"):
        filled(llm, schema, odd, odd, odd)


def test_gaps_of_enumerations_are_not_measured(llm: LLM) -> None:
    """`cal` tries lengths for the others only: a form of choices starts writing at once."""
    schema = flat(a={"type": "boolean"}, b={"enum": ["x", "yy"]})
    output = llm.chat(MESSAGES, policy="cal", evidence="suffix", trace=True, schema=schema)
    checked(output.text, schema)
    assert output.usage.expansions == output.usage.contractions == 0
    assert all(record.committed for record in output.trace)


# ── what is refused, and how ─────────────────────────────────────────────────────────────────

TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({}, "type None"),
        ({"type": "array", "items": TEXT}, "'items' is not supported"),
        ({"type": "object"}, "no properties"),
        (flat(a={"type": "array", "items": TEXT}), "property 'a' has type 'array'"),
        (flat(a={"type": "object", "properties": {}}), "property 'a' has type 'object'"),
        (flat(a={"type": ["string", "null"]}), "property 'a' has type ['string', 'null']"),
        (flat(a={"anyOf": [TEXT, {"type": "null"}]}), "'anyOf' is not supported in property 'a'"),
        (flat(a={"type": "integer", "minimum": 0}), "'minimum' is not supported in property 'a'"),
        (flat(a={"type": "string", "pattern": "x"}), "'pattern' is not supported"),
        (flat(a={}), "neither a type nor an enum"),
        (flat(a={"enum": []}), "takes a list of values"),
        (flat(a={"enum": [[1]]}), "only plain ones"),
        (flat(a={"enum": ["x"], "type": "integer"}), "'x', which is no integer"),
        (flat(a={"enum": ["x" * 300]}), "more than 200 characters"),
        (flat(a={"enum": list(range(600))}), "more than 500 values"),
        (flat(a={"const": 1}), "leaves nothing open"),
        (flat(a={"$ref": "#/$defs/b"}), "not in the schema"),
        (flat(a={"$ref": "https://example.org/a"}), "not in the schema"),
        (
            flat(a={"$ref": "#/$defs/b"}) | {"$defs": {"b": {"$ref": "#/$defs/b"}}},
            "refers to others without end",
        ),
        (flat(a=TEXT) | {"required": ["b"]}, "required names 'b'"),
        (flat(a=TEXT) | {"required": "a"}, "required"),
        (flat(a=TEXT) | {"minProperties": 1}, "'minProperties' is not supported in the schema"),
        (flat(**{f"p{i}": TEXT for i in range(101)}), "101 properties"),
        (flat(a="x"), "takes a schema"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_promised_is_refused(
    http: httpx.Client, schema: dict[str, Any], says: str
) -> None:
    answer = chat(http, schema)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert says in error["message"] and error["param"] == "response_format"


@pytest.mark.parametrize(
    ("fields", "says", "param"),
    [
        ({"response_format": {"type": "json_object"}}, "send a json_schema", "response_format"),
        ({"response_format": {"type": "json_schema"}}, "json_schema is missing", "response_format"),
        ({"response_format": {"type": "grammar"}}, "response_format", "response_format.type"),
        ({"response_format": "json"}, "response_format", "response_format"),
        ({"stop": "x"}, "stop does not go with", "stop"),
        ({"template": "___"}, "template does not go with", "template"),
        ({"logprobs": True}, "logprobs does not go with", "logprobs"),
        ({"max_tokens": 2}, "max_tokens is 2, but", "max_tokens"),
        ({"policy": "rho-eos"}, "take one of", None),
    ],
    ids=str,
)
def test_what_does_not_go_with_it(
    http: httpx.Client, fields: dict[str, Any], says: str, param: str | None
) -> None:
    answer = chat(http, flat(a=TEXT), **fields)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert says in error["message"] and error["param"] == param


def test_half_a_character_in_a_name_or_a_value(http: httpx.Client) -> None:
    for schema in (flat(**{"\ud800": TEXT}), flat(a={"enum": ["\ud800", "x"]})):
        body = {"messages": MESSAGES, "response_format": asked(schema)}
        answer = http.post(
            "/v1/chat/completions",
            content=json.dumps(body),
            headers={"content-type": "application/json"},
        )
        assert answer.status_code == 400, answer.text
