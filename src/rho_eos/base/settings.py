"""One way to declare, describe and check settings, for every class of them.

A field says its type, bounds, choices and help once. Python, the command line, JSON Lines, HTTP,
lm-eval and Ray all build the same classes, so a bad value gets the same sentence everywhere: the
field, what it got, what it takes.
"""

import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from rho_eos.base.errors import UserError


def setting(default: Any, help: str, **bounds: Any) -> Any:
    """A field with the one sentence that every edge shows for it, and its bounds (ge, le, …)."""
    return Field(default, description=help, **bounds)


def _as_tuple(value: Any) -> Any:
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


#: A text or a list of texts, none of them empty.
Texts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_as_tuple)]
#: Few of them, none long: what is looked for in every step of a request.
MOST_TEXTS, LONGEST_TEXT = 16, 1024
FewTexts = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)], ...],
    BeforeValidator(_as_tuple),
    Field(max_length=MOST_TEXTS),
]
_LONGEST_SHOWN = 200  # characters of a bad value that a sentence repeats


class Settings(BaseModel):
    """Frozen, strict (no guessing of types, no NaN), and refused in one sentence."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise UserError(self._sentence(error)) from None

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        return cls(**{str(name): value for name, value in mapping.items()})

    def replaced(self, **changes: Any) -> Self:
        """The same with some values changed, and checked again."""
        return type(self)(**{**self.model_dump(exclude_unset=True), **changes})

    def _check(self, field: str, ok: bool, takes: str) -> None:
        """For checks that look at several fields."""
        if not ok:
            raise UserError(f"{field} is {shown(getattr(self, field))}, but takes {takes}")

    @classmethod
    def _sentence(cls, error: ValidationError) -> str:
        """The first thing that is wrong, in words."""
        first = error.errors()[0]
        if not first["loc"]:  # a check of ours that looks at several fields
            return str(first["ctx"]["error"])
        name = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            return cls._unknown(name)
        if first["type"] == "missing":
            return f"{name} is missing"
        # One item of a list may be at fault: then say what the list takes.
        verb = "holds" if len(first["loc"]) > 1 else "is"
        ours = first["type"] == "value_error"  # a check of ours says itself what it takes
        what = first["ctx"]["error"] if ours else takes(cls.model_fields[name])
        return f"{name} {verb} {shown(first['input'])}, but takes {what}"

    @classmethod
    def _unknown(cls, name: str) -> str:
        return f"unknown parameter {name!r}; known are {', '.join(cls.model_fields) or 'none'}"


def shown(value: Any) -> str:
    """A bad value as a sentence shows it: cut where it is long."""
    try:
        text = repr(value[:_LONGEST_SHOWN] if isinstance(value, str | bytes) else value)
    except (ValueError, RecursionError):  # an integer or a nesting that Python will not print
        return f"a value of type {type(value).__name__}"
    cut = len(text) > _LONGEST_SHOWN or (isinstance(value, str) and len(value) > _LONGEST_SHOWN)
    return text[:_LONGEST_SHOWN] + "…" if cut else text


def kinds(annotation: Any) -> list[Any]:
    """The types a field admits, with unions and annotations taken apart."""
    if get_origin(annotation) is Annotated:
        return kinds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [kind for each in get_args(annotation) for kind in kinds(each)]
    return [annotation]


def is_optional(field: FieldInfo) -> bool:
    return type(None) in kinds(field.annotation)


def choices(field: FieldInfo) -> tuple[str, ...]:
    """The words a field admits, if it is a choice among words."""
    return tuple(
        choice
        for kind in kinds(field.annotation)
        if get_origin(kind) is Literal
        for choice in get_args(kind)
    )


def bounds(field: FieldInfo) -> dict[str, float]:
    """ge, gt, le and lt, where they are given."""
    return {
        name: getattr(limit, name)
        for limit in field.metadata
        for name in ("ge", "gt", "le", "lt")
        if getattr(limit, name, None) is not None
    }


def takes(field: FieldInfo) -> str:
    """What a field accepts, in words: `an integer of at least 1`, `one of asym, sym`."""
    words = _takes_value(field)
    return f"{words} or none" if is_optional(field) else words


def _takes_value(field: FieldInfo) -> str:
    if choices(field):
        return f"one of {', '.join(choices(field))}"
    kind = next(kind for kind in kinds(field.annotation) if kind is not type(None))
    if kind is bool:
        return "true or false"
    if kind in (int, float):
        return _whole(bounds(field)) if kind is int else f"a number{_in_range(bounds(field))}"
    if get_origin(kind) is tuple:
        return _takes_texts(kind, field)
    return "a non-empty text"


def _takes_texts(kind: Any, field: FieldInfo) -> str:
    """`a non-empty text or a list of them`, with the limits on both where there are some."""
    of_items = [limit for each in get_args(get_args(kind)[0])[1:] for limit in each.metadata]
    longest, most = _max_length(of_items), _max_length(field.metadata)
    text = "a non-empty text" + (f" of at most {longest} characters" if longest else "")
    return f"{text} or a list of {f'at most {most}' if most else 'them'}"


def _max_length(limits: Iterable[Any]) -> int | None:
    found = (getattr(limit, "max_length", None) for limit in limits)
    return next((length for length in found if length is not None), None)


def _whole(limits: Mapping[str, float]) -> str:
    if "ge" in limits and "le" in limits:
        return f"an integer from {limits['ge']} to {limits['le']}"
    return f"an integer{_in_range(limits)}"


def _in_range(limits: Mapping[str, float]) -> str:
    low, high = limits.get("ge", limits.get("gt")), limits.get("le", limits.get("lt"))
    if low is None or high is None:
        if low is not None:
            return f" of at least {low:g}" if "ge" in limits else f" above {low:g}"
        return "" if high is None else f" of at most {high:g}"
    opening, closing = "[" if "ge" in limits else "(", "]" if "le" in limits else ")"
    return f" in {opening}{low:g}, {high:g}{closing}"


def from_word(name: str, field: FieldInfo, word: str) -> Any:
    """A word of the command line as the type of its field; its range is checked with the rest."""
    if word.lower() == "none" and is_optional(field):
        return None
    for kind in kinds(field.annotation):
        if kind in (int, float, bool):
            try:
                return TypeAdapter(kind).validate_strings(word)
            except ValidationError:
                raise UserError(f"{name} is {word!r}, but takes {takes(field)}") from None
    return word
