"""Flat JSON schemas: which properties an answer has, and what a filled gap is worth as a value.

An object of strings, numbers, booleans and enumerations is a form with a gap for each of them.
Whatever else a schema asks for is refused by name: an answer that ignores it would not be valid.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from rho_eos.base.errors import UserError, shown
from rho_eos.text.user_text import is_whole

MOST_PROPERTIES = 100
MOST_OPTIONS = 500  # of all enumerations together
LONGEST_OPTION = 200  # characters
MOST_DIGITS = 15  # before and behind the point: what every reader of JSON reads exactly

_NOTES = {"title", "description", "default", "examples", "deprecated", "$comment"}
_OF_OBJECTS = {"type", "properties", "required", "additionalProperties", "$schema", "$id"}
_TABLES = {"$defs", "definitions"}
_OF_PROPERTIES = {"type", "enum", "const"}
_KINDS = ("string", "integer", "number", "boolean")
_NUMBER = re.compile(rf"-?[0-9]{{1,{MOST_DIGITS}}}(?:\.[0-9]{{1,{MOST_DIGITS}}})?")
_MOST_REFERENCES = 10


@dataclass(frozen=True, slots=True)
class Property:
    """One value of the answer."""

    name: str
    kind: str  # string, integer or number; of an enumeration "choice"
    options: tuple[str, ...] = ()  # its values, as JSON

    @property
    def key(self) -> str:
        return json.dumps(self.name, ensure_ascii=False)

    def value(self, text: str) -> str:
        """What stands in its gap, as JSON of its kind, whatever that is."""
        if self.kind == "choice":
            return max(self.options, key=lambda option: _likeness(option, text.strip()))
        if self.kind == "string":
            return json.dumps(string_of(text), ensure_ascii=False)
        found = _NUMBER.search(text)
        written = found[0] if found else "0"
        whole = self.kind == "integer" or "." not in written
        return str(int(written.partition(".")[0])) if whole else json.dumps(float(written))


def string_of(text: str) -> str:
    """The text of a gap between quotes: up to the first quote, with its escapes read if it has any
    that mean something."""
    inside = re.match(r'(?:[^"\\]|\\.)*', text, re.DOTALL)
    text = inside[0] if inside else ""
    try:
        read = json.loads(f'"{text}"', strict=False)
    except ValueError:
        return text
    return read if is_whole(read) else text


def read_schema(schema: Mapping[str, Any]) -> tuple[Property, ...]:
    """The properties in their order, or a sentence that says what cannot be promised."""
    if not isinstance(schema, Mapping):
        raise _refuse(f"the schema is {shown(schema)}, but takes a JSON object")
    _check_keywords(schema, _OF_OBJECTS | _TABLES, "the schema")
    if schema.get("type") != "object":
        raise _refuse(f"the schema has type {shown(schema.get('type'))}, but takes 'object'")
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        raise _refuse("the schema has no properties, so there is nothing to fill in")
    if len(properties) > MOST_PROPERTIES:
        raise _refuse(f"the schema has {len(properties)} properties, but takes {MOST_PROPERTIES}")
    required = schema.get("required", [])
    if not isinstance(required, list):
        raise _refuse(f"required is {shown(required)}, but takes a list of properties")
    for name in required:
        if name not in properties:
            raise _refuse(f"required names {shown(name)}, which is no property")
    read = tuple(_property(name, each, schema) for name, each in properties.items())
    if all(len(each.options) == 1 for each in read):
        raise _refuse("the schema leaves nothing open: each property has one value only")
    if sum(len(each.options) for each in read) > MOST_OPTIONS:
        raise _refuse(f"the enums have more than {MOST_OPTIONS} values together")
    return read


def _property(name: str, schema: Any, whole: Mapping[str, Any]) -> Property:
    where = f"property {shown(name)}"
    if not is_whole(name):
        raise _refuse(f"{where} has half a character (an unpaired surrogate) in its name")
    schema = _resolved(schema, whole, where)
    if not isinstance(schema, dict):
        raise _refuse(f"{where} is {shown(schema)}, but takes a schema")
    kind = schema.get("type")
    if kind not in (None, *_KINDS):  # arrays and objects have keywords of their own
        raise _refuse(
            f"{where} has type {shown(kind)}, which is not supported: a property is a string, "
            "an integer, a number, a boolean or an enum"
        )
    _check_keywords(schema, _OF_PROPERTIES, where)
    if "enum" not in schema and "const" not in schema:
        if kind is None:
            raise _refuse(f"{where} has neither a type nor an enum")
        if kind == "boolean":
            return Property(name, "choice", ("true", "false"))
        return Property(name, kind)
    return Property(name, "choice", _options(schema, where))


def _options(schema: Mapping[str, Any], where: str) -> tuple[str, ...]:
    options = schema.get("enum", [schema.get("const")])
    if "const" in schema and "enum" in schema:
        raise _refuse(f"{where} has both an enum and a const; give one of them")
    if not isinstance(options, list) or not options:
        raise _refuse(f"the enum of {where} takes a list of values")
    kind = schema.get("type")
    for option in options:
        if not _is_plain(option):
            raise _refuse(f"{where} has the value {shown(option)}; only plain ones are supported")
        if kind is not None and not _is(option, kind):
            raise _refuse(f"{where} has the value {shown(option)}, which is no {kind}")
    texts = tuple(dict.fromkeys(json.dumps(each, ensure_ascii=False) for each in options))
    if max(map(len, texts)) > LONGEST_OPTION:
        raise _refuse(f"a value of {where} has more than {LONGEST_OPTION} characters")
    return texts


def _resolved(schema: Any, whole: Mapping[str, Any], where: str) -> Any:
    """What a reference to a definition of the same schema stands for."""
    for _ in range(_MOST_REFERENCES):
        if not isinstance(schema, dict) or "$ref" not in schema:
            return schema
        _check_keywords(schema, {"$ref"}, where)
        match str(schema["$ref"]).split("/"):
            case ["#", table, name] if table in _TABLES:
                definitions = whole.get(table)
                schema = definitions.get(name) if isinstance(definitions, dict) else None
            case _:
                schema = None
        if schema is None:
            raise _refuse(f"{where} refers to a definition that is not in the schema")
    raise _refuse(f"{where} refers to a definition that refers to others without end")


def _check_keywords(schema: Mapping[str, Any], known: set[str], where: str) -> None:
    for keyword in schema:
        if keyword not in known | _NOTES:
            raise _refuse(f"{shown(keyword)} is not supported in {where}")


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or (isinstance(value, str | int) and is_whole(str(value)))


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return isinstance(value, {"string": str, "number": int | float}.get(kind, ()))


def _likeness(option: str, text: str) -> tuple[bool, int]:
    """How much an option is like a text: whether they are equal, and how long they begin alike."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(option, text, strict=False))
    return option == text, len(list(same))


def _refuse(sentence: str) -> UserError:
    return UserError(sentence, "schema")
