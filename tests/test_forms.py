"""Answers of a form: whatever a model thinks, whoever decides on lengths and commits, they have it.

The oracles are `jsonschema`, Python's own regular expressions, and arithmetic.
"""

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch

from rho_eos import LLM, UserError
from rho_eos.base.outputs import FinishReason
from rho_eos.decoding.canvas import Canvas, Positions
from rho_eos.text import forms
from rho_eos.text.forms import regex_of
from tests.attack import times

PROMPT = "Mia has 8 plums. 1) buys 6. 2) eats 5. How many are there now?"
WORDS = [
    "red",
    "bluer",
    "",
    "a b",
    'say "hi"',
    "back\\slash",
    "line\nbreak",
    "naïve 你",
    "___",
    "{",
]


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("tiny")


class Noise:
    """Weights without any sense: other logits at every position of every step."""

    def __init__(self, seed: int, spread: float) -> None:
        self.seed, self.spread = seed, spread

    def __call__(self, _id: str, canvas: Canvas, positions: Positions, logits: Any) -> Any:
        key = (self.seed, canvas.step, canvas.length, int(positions[0]))
        noise = np.random.default_rng(key).standard_normal(logits.shape, dtype=np.float32)
        return torch.from_numpy(self.spread * noise)


def value(dice: random.Random, depth: int) -> dict[str, Any]:
    """A schema of all that is supported."""
    low = dice.randint(-300, 300)
    plain: list[dict[str, Any]] = [
        {"type": "string"},
        {"type": "string", "minLength": 2, "maxLength": dice.randint(2, 6)},
        {"type": "string", "pattern": dice.choice(["^[a-z]{1,4}$", r"\d-[^\"x]", "^(ab|c.)+$"])},
        {"type": "string", "format": dice.choice(["date", "date-time", "uuid", "email", "ipv4"])},
        {"type": "integer"},
        {"type": "integer", "minimum": low, "exclusiveMaximum": low + dice.randint(1, 4000)},
        {"type": "integer", "maximum": low},
        {"type": "number"},
        {"type": "number", "minimum": low / 8, "maximum": low / 8 + dice.random()},
        {"type": "number", "exclusiveMinimum": low / 4},
        {"type": "boolean"},
        {"type": ["string", "null"]},
        {"enum": dice.sample([*WORDS, 1, -1.5, True, None, [1, "a"], {"b": []}], 4)},
        {"const": dice.choice(WORDS)},
    ]
    nested: list[Any] = [
        lambda: thing(dice, depth - 1),
        lambda: {
            "type": "array",
            "items": value(dice, depth - 1),
            "minItems": dice.randint(0, 2),
            "maxItems": dice.randint(2, 4),
        },
        lambda: {"type": "array", "items": value(dice, depth - 1)},
        lambda: {"anyOf": [value(dice, depth - 1), {"type": "null"}]},
        lambda: {"type": "object", "additionalProperties": value(dice, depth - 1)},
        lambda: {"type": "array", "prefixItems": [value(dice, 0), value(dice, 0)], "items": False},
        lambda: {"$ref": "#/$defs/tree"},
    ]
    return dice.choice(nested)() if depth and dice.random() < 0.5 else dice.choice(plain)


def thing(dice: random.Random, depth: int) -> dict[str, Any]:
    names = dice.sample([*WORDS, "name"], dice.randint(1, 3))
    return {
        "type": "object",
        "properties": {name: value(dice, depth) for name in names},
        "required": [name for name in names if dice.random() < 0.7],
        "additionalProperties": False,
    }


def drawn(seed: int) -> dict[str, Any]:
    dice = random.Random(seed)
    tree = {
        "type": "object",
        "properties": {
            "n": {"type": "boolean"},
            "next": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]},
        },
        "required": ["n", "next"],
    }
    return {**thing(dice, 2), "$defs": {"tree": tree}}


def is_valid(text: str, schema: Any) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    read = json.loads(text, parse_constant=refuse)
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    jsonschema.Draft202012Validator(schema, format_checker=checker).validate(read)


WAYS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.0},
    {"policy": "fixed", "initial_length": 3},
    {"policy": "fixed", "commit": "quota", "steps": 3, "temperature": 5.0},
    {"policy": "daedal", "cfg_scale": 1.0},
    {"policy": "scout"},
    {"policy": "released"},
    {"policy": "blocks", "initial_length": 16},
    {"cache": "window", "block_length": 8},
    {"cache": "window", "block_length": None, "order": "margin"},
    {"commit": "wino", "block_length": 16, "draft": 0.2},
    {"commit": "editing"},
    {"commit": "klass"},
    {"commit": "entropy-bound", "preset": "sym"},
    {"commit": "factor", "order": "entropy"},
    {"early_stop": False, "defer_eos": True},
]


def cases() -> Iterator[tuple[int, dict[str, Any]]]:
    for seed in range(times(len(WAYS), 500)):
        yield seed, WAYS[seed % len(WAYS)]


@pytest.mark.parametrize(("seed", "way"), cases(), ids=str)
def test_any_schema_any_weights_any_way(llm: LLM, seed: int, way: dict[str, Any]) -> None:
    schema = drawn(seed)
    ask = {"max_new_tokens": 192, "seed": seed, **way}
    noise = Noise(seed, (0.0, 1.0, 8.0)[seed % 3])
    prompts = [PROMPT, "?"][: 1 + (seed < 3)]
    noisy = [noise] * (seed % 4 > 0)
    for output in llm.generate(prompts, ask, constraint={"schema": schema}, processors=noisy):
        is_valid(output.text, schema)
        assert output.finish_reason is FinishReason.STOP
        assert output.usage.n_token <= 192


# ── the same tokens whatever a request shares its batch with ─────────────────────────────────

REGEX = r"(?:[0-9]\) [a-z ]+\n)+#### [0-9]{1,2}"


@pytest.mark.parametrize("way", [{}, {"temperature": 1.0, "seed": 4}, {"cache": "window"}], ids=str)
def test_batch_mates_change_nothing(llm: LLM, way: dict[str, Any]) -> None:
    """With a form and without one: each alone, and all together."""
    asks = [{"constraint": None}, {"constraint": {"regex": REGEX}}, {"constraint": {"regex": "a+"}}]
    prepared = [llm._prepared([llm._ask(PROMPT, way, {}, **ask)])[0] for ask in asks]
    alone = [llm.run([each])[0].canvas_token_ids for each in prepared]
    assert [each.canvas_token_ids for each in llm.run(prepared)] == alone


def test_a_form_that_allows_everything_changes_nothing(llm: LLM) -> None:
    free = llm.generate(PROMPT)[0]
    held = llm.generate(PROMPT, constraint={"regex": r"[^\x00]*"})[0]
    assert held.text == free.text and held.usage.nfe == free.usage.nfe


# ── lengths ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("policy", ["rho-eos", "fixed", "daedal", "scout", "released"])
def test_a_canvas_grows_to_the_shortest_answer_and_is_never_trimmed_below(
    llm: LLM, policy: str
) -> None:
    """A byte a token: x is no word of this model."""
    output = llm.generate(PROMPT, constraint={"regex": "x{90,}"}, policy=policy, initial_length=8)[
        0
    ]
    assert re.fullmatch("x{90,}", output.text) and output.usage.n_token >= 90
    assert output.finish_reason is FinishReason.STOP


def test_a_form_keeps_to_a_minimum_length(llm: LLM) -> None:
    constraint = {"regex": "(?:xy)+z?"}
    output = llm.generate(PROMPT, constraint=constraint, min_new_tokens=31, max_new_tokens=40)[0]
    assert re.fullmatch("(?:xy)+z?", output.text) and 31 <= len(output.token_ids) <= 40


def test_an_answer_before_given_text_fills_its_gap(llm: LLM) -> None:
    regex = "[0-9]{2}(?:, [0-9]{2}){3,}"
    for policy in ("fixed", "cal"):
        output = llm.generate(
            "The numbers: ", constraint={"regex": regex}, suffix=" and no more.", policy=policy
        )[0]
        assert re.fullmatch(regex, output.text), output.text


@pytest.mark.parametrize(
    "way",
    [
        {},
        {"temperature": 1.0, "commit": "wino"},
        {"policy": "fixed", "initial_length": 40, "cache": "none"},
    ],
    ids=str,
)
def test_a_block_diffusion_model_completes_it_block_by_block(way: dict[str, Any]) -> None:
    """What is begun in a block can be completed in those that are left, however odd their end."""
    blocks, schema = LLM("tiny-blocks"), thing_of({"type": "array", "items": {"enum": [10, 2]}})
    ask = {"max_new_tokens": 43, **way}
    for constraint in ({"schema": schema}, {"regex": "(?:ab){9,}c"}):
        [output] = blocks.generate(PROMPT, ask, constraint=constraint)
        if "schema" in constraint:
            is_valid(output.text, schema)
        else:
            assert re.fullmatch("(?:ab){9,}c", output.text)
        assert output.finish_reason is FinishReason.STOP


def test_too_little_room_is_refused_in_a_sentence(llm: LLM) -> None:
    for asked, says in (
        ({"max_new_tokens": 10}, "the shortest answer of this form has 12 tokens"),
        ({"min_new_tokens": 13}, "no answer of this form has 13 tokens or more"),
    ):
        with pytest.raises(UserError, match=says):
            llm.generate(PROMPT, constraint={"choices": ["xyxyxyxyxyxy"]}, **asked)


# ── what the words of an expression mean ─────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("regex", "wanted"),
    [
        ("a|ab", "ab"),  # an alternative is not cut off by one that is shorter
        ("^a+?b*?$", "aabb"),
        ("(?:a|ab)(?:c|bcd)?", "abcd"),
        (".*", "naïve 你"),
        (r"(?:[^\"\\]|\\[\"n]){0,30}", r"a\"b"),
    ],
)
def test_what_the_model_wants_is_what_it_gets(llm: LLM, regex: str, wanted: str) -> None:
    ids = [*llm.tokenizer.encode(wanted, add_special_tokens=False)]

    def wants(_id: str, canvas: Canvas, positions: Positions, logits: Any) -> Any:
        tokens = (ids + [llm.special.eos] * canvas.length)[: canvas.length]
        logits[range(len(positions)), [tokens[at] for at in positions]] += 1000
        return logits

    output = llm.generate(PROMPT, constraint={"regex": regex}, processors=[wants])[0]
    assert output.text == wanted


@pytest.mark.parametrize(
    ("low", "high", "above", "below"),
    [
        (0, 9, False, False),
        (-7, 123, True, True),
        (98, 1002, False, True),
        (-450, -45, True, False),
    ],
)
def test_numbers_within_bounds(low: int, high: int, above: bool, below: bool) -> None:
    names = ("exclusiveMinimum" if above else "minimum", "exclusiveMaximum" if below else "maximum")
    bounds = dict(zip(names, (low, high), strict=True))
    integers = re.compile(regex_of({"schema": {"type": "integer", **bounds}}))
    inside = range(low + above, high + 1 - below)
    for number in range(low - 20, high + 20):
        assert bool(integers.fullmatch(str(number))) == (number in inside)
    numbers = re.compile(regex_of({"schema": {"type": "number", **bounds}}))
    for cents in range(100 * low - 200, 100 * high + 200, 7):
        exact = cents / 100
        good = (low < exact if above else low <= exact) and (
            exact < high if below else exact <= high
        )
        text = f"{exact:.2f}"
        if text != "-0.00":
            assert bool(numbers.fullmatch(text)) == good, text


# ── what is refused ──────────────────────────────────────────────────────────────────────────

TEXT = {"type": "string"}


def thing_of(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}, "required": ["a"]}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (3, "the schema is 3"),
        (thing_of({"type": "text"}), "property 'a' has type 'text'"),
        (thing_of({"type": "array", "items": TEXT, "uniqueItems": True}), "'uniqueItems'"),
        (thing_of({"not": TEXT}), "property 'a' has type None"),
        (thing_of({"type": "integer", "multipleOf": 3}), "'multipleOf' is not supported"),
        (thing_of({"oneOf": [{"type": "integer"}, {"type": "number"}]}), "may both hold"),
        (thing_of({"allOf": [TEXT, TEXT]}), "allOf of several"),
        (thing_of({"enum": ["x"], "type": "integer"}), "'x', which is no integer"),
        (thing_of({**TEXT, "pattern": r"(a)\1"}), "not supported: groupref"),
        (thing_of({**TEXT, "pattern": "("}), "cannot be read"),
        (thing_of({**TEXT, "pattern": "a", "maxLength": 3}), "of which one is supported"),
        (thing_of({**TEXT, "format": "regex"}), "format 'regex'"),
        (thing_of({**TEXT, "minLength": 3, "maxLength": 2}), "below its minLength"),
        (thing_of({"$ref": "https://example.org/a"}), "not in the schema"),
        (thing_of({"$ref": "#"}), "no value is valid"),
        ({**thing_of(TEXT), "required": ["b"]}, "requires 'b'"),
        ({"type": "object", "patternProperties": {}}, "'patternProperties' is not supported"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_what_cannot_be_promised_is_refused_by_name(schema: Any, says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        regex_of({"schema": schema})


def test_an_expression_that_explodes_is_refused_and_harms_nobody(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms, "SECONDS", 2)
    with pytest.raises(UserError, match="needs too many states"):
        llm.generate(PROMPT, constraint={"regex": "(?:a|b)*a(?:a|b){30}"})
    with pytest.raises(UserError, match="cannot be compiled"):
        llm.generate(PROMPT, constraint={"regex": "a("})
    with pytest.raises(UserError, match="no text that this model's tokens spell"):
        llm.generate(PROMPT, constraint={"regex": r"[a&&b]"})
    assert llm.generate(PROMPT, constraint={"choices": ["9"]})[0].text == "9"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"constraint": {"regex": "a", "choices": ["a"]}}, "exactly one of"),
        ({"constraint": {"regex": ""}}, "not empty"),
        ({"constraint": {"choices": []}}, "a list of"),
        ({"template": "a ___ b"}, "template does not go with"),
        ({"stop": ["x"]}, "stop does not go with"),
        ({"top_p": 0.5}, "top_p does not go with"),
    ],
    ids=str,
)
def test_what_does_not_go_with_a_form(llm: LLM, asked: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        llm.generate(PROMPT, **{"constraint": {"regex": "a"}, **asked})
