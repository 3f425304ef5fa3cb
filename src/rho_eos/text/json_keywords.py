"""Keywords of JSON schemas: read, checked, and refused by name where they are not supported."""

import json
import math
from collections.abc import Mapping
from typing import Any

from rho_eos.base.errors import UserError, shown
from rho_eos.text.json_parts import escaped
from rho_eos.text.user_text import is_whole

MOST_TIMES = 10_000  # characters of a string, items of an array
#: Keywords that say nothing of a value.
NOTES = {
    *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
    *("$comment", "$schema", "$id", "$defs", "definitions", "discriminator"),
}
COMMA, COLON = ", ?", ": ?"


def options_of(schema: Mapping[str, Any], where: str) -> str:
    check_keywords(schema, {"type", "enum", "const"}, where)
    options = schema["enum"] if "enum" in schema else [schema["const"]]
    if "const" in schema and "enum" in schema:
        raise refused(f"{where} has both an enum and a const; give one of them")
    if not isinstance(options, list) or not options:
        raise refused(f"the enum of {where} takes a list of values")
    kinds = schema.get("type")
    for option in options:
        named = kinds if isinstance(kinds, list) else [kinds]
        if kinds is not None and not any(is_of(option, str(kind)) for kind in named):
            raise refused(f"{where} has the value {shown(option)}, which is no {kinds}")
    return f"(?:{'|'.join(dict.fromkeys(literal(each) for each in options))})"


def literal(value: Any) -> str:
    """One value, as all others are written."""
    if isinstance(value, list):
        return rf"\[{COMMA.join(map(literal, value))}\]"
    if isinstance(value, Mapping):
        pairs = (f"{literal(str(name))}{COLON}{literal(each)}" for name, each in value.items())
        return rf"\{{{COMMA.join(pairs)}\}}"
    if isinstance(value, float) and not math.isfinite(value):
        raise refused(f"{shown(value)} is no value of JSON")
    if isinstance(value, str) and not is_whole(value):
        raise refused("a value has half a character (an unpaired surrogate)")
    return escaped(json.dumps(value, ensure_ascii=False))


def is_of(value: Any, kind: str) -> bool:
    if isinstance(value, bool) or value is None:
        return kind == {True: "boolean", False: "boolean", None: "null"}[value]
    if kind == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    kinds: dict[str, Any] = {"string": str, "number": (int, float), "array": list, "object": dict}
    return isinstance(value, kinds.get(kind, ()))


def tags_of(schema: Any) -> dict[str, set[str]]:
    """The values that each required property with an enum or a const may have."""
    properties = schema.get("properties", {}) if isinstance(schema, Mapping) else {}
    found = {}
    for name, each in properties.items() if isinstance(properties, Mapping) else ():
        if isinstance(each, Mapping) and name in schema.get("required", ()):
            values = each.get("enum", [each["const"]] if "const" in each else None)
            if isinstance(values, list):
                found[name] = {json.dumps(value, sort_keys=True) for value in values}
    return found


def bounds_of(schema: Mapping[str, Any], where: str) -> tuple[Any, Any, bool, bool]:
    """The least and the largest value, and whether each of them is left out."""
    found: list[Any] = []
    for plain, exclusive, pick in (
        ("minimum", "exclusiveMinimum", max),
        ("maximum", "exclusiveMaximum", min),
    ):
        both = {name: schema[name] for name in (plain, exclusive) if name in schema}
        for name, value in both.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise refused(f"{name} of {where} is {shown(value)}, but takes a number")
            if not math.isfinite(value) or abs(value) > 1e15:
                raise refused(f"{name} of {where} is {shown(value)}, but takes at most 1e15")
        value = pick(both.values()) if both else None
        found += [(value, value is not None and both.get(exclusive) == value)]
    (low, above), (high, below) = found
    return low, high, above, below


def counts_of(
    schema: Mapping[str, Any], least: str, most: str, where: str
) -> tuple[int, int | None]:
    for name in (least, most):
        value = schema.get(name, 0)
        if type(value) is not int or not 0 <= value <= MOST_TIMES:
            raise refused(f"{name} of {where} is {shown(value)}, but takes 0 to {MOST_TIMES}")
    low, high = schema.get(least, 0), schema.get(most)
    if high is not None and high < low:
        raise refused(f"{where} has a {most} below its {least}")
    return low, high


def check_keywords(schema: Mapping[str, Any], known: set[str], where: str) -> None:
    for keyword in schema:
        if keyword not in known | NOTES:
            raise refused(f"{shown(keyword)} is not supported in {where}")


def refused(sentence: str) -> UserError:
    return UserError(sentence, "schema")
