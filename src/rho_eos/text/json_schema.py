"""From a JSON schema to the regular expression of its answers.

Every text of the expression is valid for the schema; some texts that are valid are not among them:
properties come in the schema's order, others are left out, at most one blank stands behind a comma
or a colon, and numbers have no exponent. What a regular expression cannot promise is refused by
name. A definition may hold itself to a stated depth.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rho_eos.base.errors import UserError, shown
from rho_eos.text.json_parts import (
    CHARACTER,
    FORMATS,
    INTEGER,
    NUMBER,
    STRING,
    escaped,
    integers,
    numbers,
    safe_pattern,
)
from rho_eos.text.user_text import is_whole

__all__ = ["escaped", "json_regex"]

MOST_NESTED = 3  # how often a definition may stand within itself
DEEPEST = 2  # how deep values nest of which a schema says nothing
MOST_PARTS = 5_000
MOST_TIMES = 10_000  # characters of a string, items of an array

_NOTES = {
    *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
    *("$comment", "$schema", "$id", "$defs", "definitions", "discriminator"),
}
_OF = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems"},
    "string": {"minLength", "maxLength", "pattern", "format"},
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "boolean": set[str](),
    "null": set[str](),
}
_BLANK = " ?"
_COMMA, _COLON = f",{_BLANK}", f":{_BLANK}"


def json_regex(schema: Any) -> str:
    """The expression of all answers that this schema's values are written as."""
    regex = _Writer(schema).value(schema, "the schema")
    if regex is None:
        raise _refuse("no value is valid for the schema at the depth that is allowed")
    return regex


class _Writer:
    def __init__(self, whole: Any) -> None:
        self.whole = whole
        self.parts = 0
        self.open: list[str] = []  # the definitions that are being written

    def value(self, schema: Any, where: str) -> str | None:
        """The expression of one value; None: there is none at this depth."""
        self.parts += 1
        if self.parts > MOST_PARTS:
            raise _refuse(f"the schema has more than {MOST_PARTS} parts, counted where they stand")
        if schema is True or schema == {}:
            return _anything(DEEPEST)
        if not isinstance(schema, Mapping):
            raise _refuse(f"{where} is {shown(schema)}, but takes a schema")
        asked = schema.keys() - _NOTES
        if "$ref" in asked:
            _only(schema, {"$ref"}, where)
            return self._definition(schema["$ref"], where)
        for union in ("anyOf", "oneOf", "allOf"):
            if union in asked:
                _only(schema, {union}, where)
                return self._union(union, schema[union], where)
        if asked & {"const", "enum"}:
            return _options(schema, where)
        kind = schema.get("type")
        if isinstance(kind, list):
            _only(schema, {"type"}.union(*(_OF.get(str(each), ()) for each in kind)), where)
            of_kind = [
                {name: schema[name] for name in _OF.get(str(each), ()) if name in schema}
                | {"type": each}
                for each in kind
            ]
            return _either(self.value(each, where) for each in of_kind)
        if kind not in _OF:
            takes = f"one of {', '.join(_OF)}, an enum, a $ref or an anyOf"
            raise _refuse(f"{where} has type {shown(kind)}, but takes {takes}")
        _only(schema, {"type", *_OF[kind]}, where)
        written: str | None = getattr(self, f"_{kind}")(schema, where)
        return written

    def _definition(self, name: Any, where: str) -> str | None:
        if self.open.count(str(name)) > MOST_NESTED:
            return None
        found: Any = self.whole
        head, *path = str(name).split("/")
        for part in path:
            part = part.replace("~1", "/").replace("~0", "~")
            found = found.get(part) if isinstance(found, Mapping) else None
        if head != "#" or found is None:
            raise _refuse(f"{where} refers to {shown(name)}, which is not in the schema")
        if len(self.open) > 50 * (MOST_NESTED + 1):
            raise _refuse(f"{where} refers to a definition that refers to others without end")
        self.open.append(str(name))
        regex = self.value(found, where)
        self.open.pop()
        return regex

    def _union(self, kind: str, schemas: Any, where: str) -> str | None:
        if not isinstance(schemas, list) or not schemas:
            raise _refuse(f"{kind} of {where} takes a list of schemas")
        if kind == "allOf" and len(schemas) > 1:
            raise _refuse(f"{where} has an allOf of several schemas, which is not supported")
        if kind == "oneOf" and len(schemas) > 1 and not self._differ(schemas):
            raise _refuse(
                f"{where} has a oneOf whose schemas may both hold; use anyOf, or give each another "
                "type, or a required property with a const of its own"
            )
        return _either(self.value(each, where) for each in schemas)

    def _differ(self, schemas: Sequence[Any]) -> bool:
        """Whether no value can be of two of these: by their types, or by a tag that each has."""
        resolved = [self._resolved(each) for each in schemas]
        kinds = [each.get("type") if isinstance(each, Mapping) else None for each in resolved]
        tags = [_tags(each) for each in resolved]
        for first in range(len(schemas)):
            for second in range(first):
                pair = {str(kinds[first]), str(kinds[second])}
                by_type = len(pair) == 2 and "None" not in pair and pair != {"integer", "number"}
                common = tags[first].keys() & tags[second].keys()
                by_tag = any(tags[first][each].isdisjoint(tags[second][each]) for each in common)
                if not ((by_type and all(isinstance(each, str) for each in kinds)) or by_tag):
                    return False
        return True

    def _resolved(self, schema: Any) -> Any:
        for _ in range(MOST_NESTED):
            if isinstance(schema, Mapping) and str(schema.get("$ref", "")).startswith("#/"):
                found: Any = self.whole
                for part in str(schema["$ref"]).split("/")[1:]:
                    found = found.get(part) if isinstance(found, Mapping) else None
                schema = found
        return schema

    # ── one method for each type ─────────────────────────────────────────────────────────────

    def _boolean(self, schema: Mapping[str, Any], where: str) -> str:  # noqa: ARG002
        return "(?:true|false)"

    def _null(self, schema: Mapping[str, Any], where: str) -> str:  # noqa: ARG002
        return "null"

    def _string(self, schema: Mapping[str, Any], where: str) -> str:
        asked = schema.keys() & _OF["string"]
        least, most = _counts(schema, "minLength", "maxLength", where)
        if len(asked & {"pattern", "format"}) + bool(asked & {"minLength", "maxLength"}) > 1:
            raise _refuse(f"{where} has {' and '.join(sorted(asked))}, of which one is supported")
        if "pattern" in asked:
            return f'"{safe_pattern(schema["pattern"], where)}"'
        if "format" in asked:
            if schema["format"] not in FORMATS:
                takes = f"one of {', '.join(FORMATS)}"
                raise _refuse(f"{where} has format {shown(schema['format'])}, but takes {takes}")
            return f'"{FORMATS[schema["format"]]}"'
        if not asked:
            return STRING
        return f'"{CHARACTER}{{{least},{"" if most is None else most}}}"'

    def _integer(self, schema: Mapping[str, Any], where: str) -> str | None:
        bounds = _bounds(schema, where)
        return integers(*bounds) if bounds[:2] != (None, None) else INTEGER

    def _number(self, schema: Mapping[str, Any], where: str) -> str | None:
        bounds = _bounds(schema, where)
        return numbers(*bounds) if bounds[:2] != (None, None) else NUMBER

    def _array(self, schema: Mapping[str, Any], where: str) -> str | None:
        least, most = _counts(schema, "minItems", "maxItems", where)
        inside = f"an item of {where}"
        if "prefixItems" in schema:
            first = schema["prefixItems"]
            if not isinstance(first, list):
                raise _refuse(f"prefixItems of {where} takes a list of schemas")
            if not least <= len(first) <= (len(first) if most is None else most):
                raise _refuse(f"{where} has other bounds than its {len(first)} prefixItems")
            items = [self.value(each, inside) for each in first]
            return None if None in items else rf"\[{_COMMA.join(filter(None, items))}\]"
        if most == 0:
            return r"\[\]"
        item = self.value(schema.get("items", True), inside)
        if item is None:
            return None if least else r"\[\]"
        times = f"{{{max(least - 1, 0)},{'' if most is None else most - 1}}}"
        some = f"{item}(?:{_COMMA}{item}){times}"
        return rf"\[{some}\]" if least else rf"\[(?:{some})?\]"

    def _object(self, schema: Mapping[str, Any], where: str) -> str | None:
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        if not isinstance(properties, Mapping) or not isinstance(required, list):
            raise _refuse(f"{where} takes an object of properties, and a list of required ones")
        for name in required:
            if name not in properties:
                raise _refuse(f"{where} requires {shown(name)}, which is no property")
        more = schema.get("additionalProperties", True)
        if not properties:
            if more is False:
                return r"\{\}"
            value = self.value(more, f"a value of {where}")
            return r"\{\}" if value is None else _map_of(value)
        members: list[tuple[str, bool]] = []
        for name, each in properties.items():
            if not is_whole(name):
                raise _refuse(f"{where} has half a character (an unpaired surrogate) in a name")
            value = self.value(each, f"property {shown(name)}")
            if value is None and name in required:
                return None
            if value is not None:
                members.append((f"{_literal(name)}{_COLON}{value}", name in required))
        return rf"\{{{_members(members)}\}}"


def _members(members: Sequence[tuple[str, bool]]) -> str:
    """Members in their order with commas between them; those that are not required may be left
    out."""
    needed = [index for index, (_, required) in enumerate(members) if required]
    if needed:
        first = needed[0]
        before = "".join(f"(?:{member}{_COMMA})?" for member, _ in members[:first])
        return before + members[first][0] + _following(members[first + 1 :])
    begun = [member + _following(members[index + 1 :]) for index, (member, _) in enumerate(members)]
    return f"(?:{'|'.join(begun)})?"


def _following(members: Sequence[tuple[str, bool]]) -> str:
    return "".join(
        f"{_COMMA}{member}" if required else f"(?:{_COMMA}{member})?"
        for member, required in members
    )


def _map_of(value: str) -> str:
    member = f"{STRING}{_COLON}{value}"
    return rf"\{{(?:{member}(?:{_COMMA}{member})*)?\}}"


def _anything(depth: int) -> str:
    """Any value of JSON, nested so deep at most."""
    plain = f"{STRING}|{NUMBER}|true|false|null"
    if not depth:
        return f"(?:{plain})"
    inside = _anything(depth - 1)
    return rf"(?:{plain}|\[(?:{inside}(?:{_COMMA}{inside})*)?\]|{_map_of(inside)})"


def _either(found: Iterable[str | None]) -> str | None:
    some = list(dict.fromkeys(each for each in found if each is not None))
    return f"(?:{'|'.join(some)})" if some else None


def _options(schema: Mapping[str, Any], where: str) -> str:
    _only(schema, {"type", "enum", "const"}, where)
    options = schema["enum"] if "enum" in schema else [schema["const"]]
    if "const" in schema and "enum" in schema:
        raise _refuse(f"{where} has both an enum and a const; give one of them")
    if not isinstance(options, list) or not options:
        raise _refuse(f"the enum of {where} takes a list of values")
    kinds = schema.get("type")
    for option in options:
        named = kinds if isinstance(kinds, list) else [kinds]
        if kinds is not None and not any(_is(option, str(kind)) for kind in named):
            raise _refuse(f"{where} has the value {shown(option)}, which is no {kinds}")
    return f"(?:{'|'.join(dict.fromkeys(_literal(each) for each in options))})"


def _literal(value: Any) -> str:
    """One value, as all others are written."""
    if isinstance(value, list):
        return rf"\[{_COMMA.join(map(_literal, value))}\]"
    if isinstance(value, Mapping):
        pairs = (f"{_literal(str(name))}{_COLON}{_literal(each)}" for name, each in value.items())
        return rf"\{{{_COMMA.join(pairs)}\}}"
    if isinstance(value, float) and not math.isfinite(value):
        raise _refuse(f"{shown(value)} is no value of JSON")
    if isinstance(value, str) and not is_whole(value):
        raise _refuse("a value has half a character (an unpaired surrogate)")
    return escaped(json.dumps(value, ensure_ascii=False))


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool) or value is None:
        return kind == {True: "boolean", False: "boolean", None: "null"}[value]
    if kind == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    kinds: dict[str, Any] = {"string": str, "number": (int, float), "array": list, "object": dict}
    return isinstance(value, kinds.get(kind, ()))


def _tags(schema: Any) -> dict[str, set[str]]:
    """The values that each required property with an enum or a const may have."""
    properties = schema.get("properties", {}) if isinstance(schema, Mapping) else {}
    found = {}
    for name, each in properties.items() if isinstance(properties, Mapping) else ():
        if isinstance(each, Mapping) and name in schema.get("required", ()):
            values = each.get("enum", [each["const"]] if "const" in each else None)
            if isinstance(values, list):
                found[name] = {json.dumps(value, sort_keys=True) for value in values}
    return found


def _bounds(schema: Mapping[str, Any], where: str) -> tuple[Any, Any, bool, bool]:
    """The least and the largest value, and whether each of them is left out."""
    found: list[Any] = []
    for plain, exclusive, pick in (
        ("minimum", "exclusiveMinimum", max),
        ("maximum", "exclusiveMaximum", min),
    ):
        both = {name: schema[name] for name in (plain, exclusive) if name in schema}
        for name, value in both.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise _refuse(f"{name} of {where} is {shown(value)}, but takes a number")
            if not math.isfinite(value) or abs(value) > 1e15:
                raise _refuse(f"{name} of {where} is {shown(value)}, but takes at most 1e15")
        value = pick(both.values()) if both else None
        found += [(value, value is not None and both.get(exclusive) == value)]
    (low, above), (high, below) = found
    return low, high, above, below


def _counts(schema: Mapping[str, Any], least: str, most: str, where: str) -> tuple[int, int | None]:
    for name in (least, most):
        value = schema.get(name, 0)
        if type(value) is not int or not 0 <= value <= MOST_TIMES:
            raise _refuse(f"{name} of {where} is {shown(value)}, but takes 0 to {MOST_TIMES}")
    low, high = schema.get(least, 0), schema.get(most)
    if high is not None and high < low:
        raise _refuse(f"{where} has a {most} below its {least}")
    return low, high


def _only(schema: Mapping[str, Any], known: set[str], where: str) -> None:
    for keyword in schema:
        if keyword not in known | _NOTES:
            raise _refuse(f"{shown(keyword)} is not supported in {where}")


def _refuse(sentence: str) -> UserError:
    return UserError(sentence, "schema")
