"""From a JSON schema to the regular expression of its answers.

Every text of the expression is valid for the schema; some texts that are valid are not among them:
properties come in the schema's order, others are left out, at most one blank stands behind a comma
or a colon, and numbers have no exponent. What a regular expression cannot promise is refused by
name. A definition may hold itself to a stated depth.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rho_eos.base.errors import shown
from rho_eos.text.json_keywords import (
    COLON,
    COMMA,
    NOTES,
    bounds_of,
    check_keywords,
    counts_of,
    literal,
    options_of,
    refused,
    tags_of,
)
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

_OF = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems"},
    "string": {"minLength", "maxLength", "pattern", "format"},
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "boolean": set[str](),
    "null": set[str](),
}


def json_regex(schema: Any) -> str:
    """The expression of all answers that this schema's values are written as."""
    regex = _Writer(schema).value(schema, "the schema")
    if regex is None:
        raise refused("no value is valid for the schema at the depth that is allowed")
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
            raise refused(f"the schema has more than {MOST_PARTS} parts, counted where they stand")
        if schema is True or schema == {}:
            return _anything(DEEPEST)
        if not isinstance(schema, Mapping):
            raise refused(f"{where} is {shown(schema)}, but takes a schema")
        asked = schema.keys() - NOTES
        if "$ref" in asked:
            check_keywords(schema, {"$ref"}, where)
            return self._definition(schema["$ref"], where)
        for union in ("anyOf", "oneOf", "allOf"):
            if union in asked:
                check_keywords(schema, {union}, where)
                return self._union(union, schema[union], where)
        if asked & {"const", "enum"}:
            return options_of(schema, where)
        kind = schema.get("type")
        if isinstance(kind, list):
            check_keywords(
                schema, {"type"}.union(*(_OF.get(str(each), ()) for each in kind)), where
            )
            of_kind = [
                {name: schema[name] for name in _OF.get(str(each), ()) if name in schema}
                | {"type": each}
                for each in kind
            ]
            return _either(self.value(each, where) for each in of_kind)
        if kind not in _OF:
            takes = f"one of {', '.join(_OF)}, an enum, a $ref or an anyOf"
            raise refused(f"{where} has type {shown(kind)}, but takes {takes}")
        check_keywords(schema, {"type", *_OF[kind]}, where)
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
            raise refused(f"{where} refers to {shown(name)}, which is not in the schema")
        if len(self.open) > 50 * (MOST_NESTED + 1):
            raise refused(f"{where} refers to a definition that refers to others without end")
        self.open.append(str(name))
        regex = self.value(found, where)
        self.open.pop()
        return regex

    def _union(self, kind: str, schemas: Any, where: str) -> str | None:
        if not isinstance(schemas, list) or not schemas:
            raise refused(f"{kind} of {where} takes a list of schemas")
        if kind == "allOf" and len(schemas) > 1:
            raise refused(f"{where} has an allOf of several schemas, which is not supported")
        if kind == "oneOf" and len(schemas) > 1 and not self._differ(schemas):
            raise refused(
                f"{where} has a oneOf whose schemas may both hold; use anyOf, or give each another "
                "type, or a required property with a const of its own"
            )
        return _either(self.value(each, where) for each in schemas)

    def _differ(self, schemas: Sequence[Any]) -> bool:
        """Whether no value can be of two of these: by their types, or by a tag that each has."""
        resolved = [self._resolved(each) for each in schemas]
        kinds = [each.get("type") if isinstance(each, Mapping) else None for each in resolved]
        tags = [tags_of(each) for each in resolved]
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
        least, most = counts_of(schema, "minLength", "maxLength", where)
        if len(asked & {"pattern", "format"}) + bool(asked & {"minLength", "maxLength"}) > 1:
            raise refused(f"{where} has {' and '.join(sorted(asked))}, of which one is supported")
        if "pattern" in asked:
            return f'"{safe_pattern(schema["pattern"], where)}"'
        if "format" in asked:
            if schema["format"] not in FORMATS:
                takes = f"one of {', '.join(FORMATS)}"
                raise refused(f"{where} has format {shown(schema['format'])}, but takes {takes}")
            return f'"{FORMATS[schema["format"]]}"'
        if not asked:
            return STRING
        return f'"{CHARACTER}{{{least},{"" if most is None else most}}}"'

    def _integer(self, schema: Mapping[str, Any], where: str) -> str | None:
        bounds = bounds_of(schema, where)
        return integers(*bounds) if bounds[:2] != (None, None) else INTEGER

    def _number(self, schema: Mapping[str, Any], where: str) -> str | None:
        bounds = bounds_of(schema, where)
        return numbers(*bounds) if bounds[:2] != (None, None) else NUMBER

    def _array(self, schema: Mapping[str, Any], where: str) -> str | None:
        least, most = counts_of(schema, "minItems", "maxItems", where)
        inside = f"an item of {where}"
        if "prefixItems" in schema:
            first = schema["prefixItems"]
            if not isinstance(first, list):
                raise refused(f"prefixItems of {where} takes a list of schemas")
            if not least <= len(first) <= (len(first) if most is None else most):
                raise refused(f"{where} has other bounds than its {len(first)} prefixItems")
            items = [self.value(each, inside) for each in first]
            return None if None in items else rf"\[{COMMA.join(filter(None, items))}\]"
        if most == 0:
            return r"\[\]"
        item = self.value(schema.get("items", True), inside)
        if item is None:
            return None if least else r"\[\]"
        times = f"{{{max(least - 1, 0)},{'' if most is None else most - 1}}}"
        some = f"{item}(?:{COMMA}{item}){times}"
        return rf"\[{some}\]" if least else rf"\[(?:{some})?\]"

    def _object(self, schema: Mapping[str, Any], where: str) -> str | None:
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        if not isinstance(properties, Mapping) or not isinstance(required, list):
            raise refused(f"{where} takes an object of properties, and a list of required ones")
        for name in required:
            if name not in properties:
                raise refused(f"{where} requires {shown(name)}, which is no property")
        more = schema.get("additionalProperties", True)
        if not properties:
            if more is False:
                return r"\{\}"
            value = self.value(more, f"a value of {where}")
            return r"\{\}" if value is None else _map_of(value)
        members: list[tuple[str, bool]] = []
        for name, each in properties.items():
            if not is_whole(name):
                raise refused(f"{where} has half a character (an unpaired surrogate) in a name")
            value = self.value(each, f"property {shown(name)}")
            if value is None and name in required:
                return None
            if value is not None:
                members.append((f"{literal(name)}{COLON}{value}", name in required))
        return rf"\{{{_members(members)}\}}"


def _members(members: Sequence[tuple[str, bool]]) -> str:
    """Members in their order with commas between them; those that are not required may be left
    out."""
    needed = [index for index, (_, required) in enumerate(members) if required]
    if needed:
        first = needed[0]
        before = "".join(f"(?:{member}{COMMA})?" for member, _ in members[:first])
        return before + members[first][0] + _following(members[first + 1 :])
    begun = [member + _following(members[index + 1 :]) for index, (member, _) in enumerate(members)]
    return f"(?:{'|'.join(begun)})?"


def _following(members: Sequence[tuple[str, bool]]) -> str:
    return "".join(
        f"{COMMA}{member}" if required else f"(?:{COMMA}{member})?" for member, required in members
    )


def _map_of(value: str) -> str:
    member = f"{STRING}{COLON}{value}"
    return rf"\{{(?:{member}(?:{COMMA}{member})*)?\}}"


def _anything(depth: int) -> str:
    """Any value of JSON, nested so deep at most."""
    plain = f"{STRING}|{NUMBER}|true|false|null"
    if not depth:
        return f"(?:{plain})"
    inside = _anything(depth - 1)
    return rf"(?:{plain}|\[(?:{inside}(?:{COMMA}{inside})*)?\]|{_map_of(inside)})"


def _either(found: Iterable[str | None]) -> str | None:
    some = list(dict.fromkeys(each for each in found if each is not None))
    return f"(?:{'|'.join(some)})" if some else None
