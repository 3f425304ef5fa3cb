"""One way to declare, describe and check settings, for every class of them.

A field says its type, bounds, choices and help once. Python, the command line, JSON Lines, HTTP,
lm-eval and Ray all build the same classes, so a bad value is refused everywhere with the same
sentence, which says the field, what it got and what it takes.
"""

import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from rho_eos.base.errors import UserError, did_you_mean
from rho_eos.base.errors import shown as shown

#: A text or a list of texts, none of them empty.
Texts = tuple[Annotated[str, Field(min_length=1)], ...]
#: The same for texts that are looked for in every step of a request, so they are few and short.
MOST_TEXTS, LONGEST_TEXT = 16, 1024
FewTexts = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)], ...],
    Field(max_length=MOST_TEXTS),
]

#: Token ids that are looked for in every step.
FewIds = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=MOST_TEXTS)]


def setting(default: Any, help: str, **bounds: Any) -> Any:
    """A field with the one sentence that every edge shows for it, and its bounds (ge, le, …)."""
    return Field(default, description=help, **bounds)


class Settings(BaseModel):
    """Settings that cannot change and are checked strictly: no type is guessed, NaN is refused."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, **given: Any) -> None:
        try:
            super().__init__(**{name: self._as_tuple(name, each) for name, each in given.items()})
        except ValidationError as error:
            raise self._refusal(error) from None

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        return cls(**{str(name): value for name, value in mapping.items()})

    def replaced(self, **changes: Any) -> Self:
        """The same with some values changed, and checked again."""
        return type(self)(**{**self.model_dump(exclude_unset=True), **changes})

    def _check(self, field: str, ok: bool, takes: str) -> None:
        """Refuse the value of a field unless `ok`, in checks that look at several fields."""
        if not ok:
            raise UserError.of(field, getattr(self, field), takes)

    @classmethod
    def _as_tuple(cls, name: str, value: Any) -> Any:
        """A field of several values also takes a list, or one value alone."""
        field = cls.model_fields.get(name)
        if field is None or item_of(field) is None or value is None:
            return value
        return tuple(value) if isinstance(value, list | tuple) else (value,)

    @classmethod
    def _refusal(cls, error: ValidationError) -> UserError:
        """The first complaint of pydantic, as an error that names the field."""
        first = error.errors()[0]
        ours = first["ctx"]["error"] if first["type"] == "value_error" else None
        if not first["loc"]:  # a check that looks at several fields
            return ours if isinstance(ours, UserError) else UserError(str(ours))
        name = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            return UserError(cls._unknown(name), name, first["input"])
        if first["type"] == "missing":
            return UserError(f"{name} is missing", name)
        # One item of a list may be at fault: then the sentence says what the list takes.
        verb = "holds" if len(first["loc"]) > 1 else "is"
        what = str(ours) if ours else takes(cls.model_fields[name])
        return UserError.of(name, first["input"], what, verb)

    @classmethod
    def _unknown(cls, name: str) -> str:
        near = did_you_mean(name, cls.model_fields)
        known = f"; known are {', '.join(cls.model_fields) or 'none'}"
        return f"unknown parameter {name!r}{near or known}"


def kinds(annotation: Any) -> list[Any]:
    """The types a field admits, with unions and annotations taken apart."""
    if get_origin(annotation) is Annotated:
        return kinds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [kind for each in get_args(annotation) for kind in kinds(each)]
    return [annotation]


def is_optional(field: FieldInfo) -> bool:
    return type(None) in kinds(field.annotation)


def item_of(field: FieldInfo) -> FieldInfo | None:
    """What each item of a field of several values (`tuple[int, ...]`) takes; else None."""
    for kind in kinds(field.annotation):
        if get_origin(kind) is tuple:
            return FieldInfo.from_annotation(get_args(kind)[0])
    return None


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
    words = choices(field)
    if bool in kinds(field.annotation):
        return "true or false" if not words else f"true, false or {', '.join(words)}"
    if words:
        return f"one of {', '.join(words)}"
    most = next(
        (limit.max_length for limit in field.metadata if hasattr(limit, "max_length")), None
    )
    if item := item_of(field):
        return f"{_takes_value(item)} or a list of {f'at most {most}' if most else 'them'}"
    kind = next(kind for kind in kinds(field.annotation) if kind is not type(None))
    if kind in (int, float):
        return _number("an integer" if kind is int else "a number", bounds(field))
    return "a non-empty text" + (f" of at most {most} characters" if most else "")


def _number(what: str, limits: Mapping[str, float]) -> str:
    low, high = limits.get("ge", limits.get("gt")), limits.get("le", limits.get("lt"))
    if low is not None and high is None:
        return f"{what} of at least {low:g}" if "ge" in limits else f"{what} above {low:g}"
    if low is None:
        return what if high is None else f"{what} of at most {high:g}"
    if what == "an integer":
        return f"{what} from {low} to {high}"
    opening, closing = "[" if "ge" in limits else "(", "]" if "le" in limits else ")"
    return f"{what} in {opening}{low:g}, {high:g}{closing}"


def from_word(name: str, field: FieldInfo, word: str | Sequence[str]) -> Any:
    """A word of the command line as the type of its field; its range is checked with the rest.

    Several numbers are given as `1,2,3`, or by repeating the option. A text may hold commas.
    """
    if isinstance(word, str) and word.lower() == "none" and is_optional(field):
        return None
    if isinstance(word, str) and word in choices(field):
        return word
    item = item_of(field)
    admitted = kinds((item or field).annotation)
    kind = next((kind for kind in admitted if kind in (int, float, bool)), None)
    if kind is None:
        return word
    words = [word] if isinstance(word, str) else word
    if item:
        words = [each for word in words for each in word.split(",")]
    try:
        read = [TypeAdapter(kind).validate_strings(each) for each in words]
    except ValidationError:
        raise UserError.of(name, word, takes(field)) from None
    return tuple(read) if item else read[0]
