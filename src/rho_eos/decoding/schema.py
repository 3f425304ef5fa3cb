"""One description of all policies, commit rules and caches and their parameters, for every edge.

The command line makes its options from it, the server its request fields, the playground its form.
What is registered is in all of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import getdoc
from typing import Any

from pydantic.fields import FieldInfo

from rho_eos.base.settings import bounds, choices, from_word, is_optional, item_of, kinds, takes
from rho_eos.decoding.params import NO_CACHE, DecodeParams, composed, parts_of
from rho_eos.decoding.registry import CACHES, COMMITS, POLICIES, policies

AXES = ("policy", "commit", "cache")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter under one name; those who have it may differ in default and bounds."""

    name: str
    field: FieldInfo  # what all share, or of the first that has it
    owners: Mapping[str, FieldInfo]  # by what they are called in help texts and sentences

    @property
    def axis(self) -> str | None:
        """Which axis has it: `policy`, `commit` or `cache`. None: every request has it."""
        if self.name in DecodeParams.model_fields:
            return None
        words = {owner.partition(" ")[0] for owner in self.owners}
        return next((axis for axis in ("commit", "cache") if axis in words), "policy")

    @property
    def is_foreign(self) -> bool:
        """Whether only parts from outside have it."""
        if self.axis is None:
            return False
        known: dict[str, Any] = {"policy": POLICIES, "commit": COMMITS, "cache": CACHES}
        pairs = (owner.split(" ", 1) for owner in self.owners)
        return all(known[axis].is_foreign(name) for axis, name in pairs)

    @property
    def everywhere(self) -> bool:
        """Whether all policies, all commit rules or all caches have it."""
        own = [owner for owner in self.owners if owner.startswith(f"{self.axis} ")]
        return len(own) == len(parts()[self.axis or "policy"])

    @property
    def help(self) -> str:
        """What it means to those who have it; what most of them mean by it comes first."""
        if self.name in AXES:
            one_of = f"{self.field.description}; one of {', '.join(choices_of(self.name))}"
            return one_of + told_default({"": self.field.default})
        meanings: dict[str, dict[str, Any]] = {}
        for owner, field in self.owners.items():
            meanings.setdefault(told(field), {})[owner.partition(" ")[2]] = field.default
        sentences: list[str] = []
        for meaning, defaults in sorted(meanings.items(), key=lambda each: -len(each[1])):
            shared = not sentences and (self.axis is None or self.everywhere)
            whose = "" if shared else f"{', '.join(defaults)}: "
            sentences.append(whose + meaning + told_default(defaults))
        return "; ".join(sentences)


def told(field: FieldInfo) -> str:
    """The sentence that every edge shows for a field, with the words that it takes."""
    words = "" if bool in kinds(field.annotation) else ", ".join(choices(field))
    return f"{field.description}; one of {words}" if words else str(field.description)


def told_default(defaults: Mapping[str, Any]) -> str:
    """The default in brackets, with those of owners that have another one."""
    first, *_ = defaults.values()
    others = {name: value for name, value in defaults.items() if value != first}
    if not others and (first in (None, ()) or isinstance(first, bool)):
        return ""
    shown = "; ".join(f"{name}: {value}" for name, value in {"default": first, **others}.items())
    return f" [{shown}]"


def parts() -> dict[str, dict[str, Any]]:
    """Every policy, commit rule and cache by axis and name."""
    return {"policy": policies(), "commit": COMMITS.all(), "cache": CACHES.all()}


def parameters() -> Mapping[str, Parameter]:
    """All there are: first what requests share, then each part's own."""
    fields: dict[str, FieldInfo] = dict(DecodeParams.model_fields)
    owners: dict[str, dict[str, FieldInfo]] = {}
    for axis, known in parts().items():
        for name, part in known.items():
            label = f"{axis} {name}"
            for parameter, field in part.Params.model_fields.items():
                fields.setdefault(parameter, field)
                owners.setdefault(parameter, {})[label] = field
    return {name: Parameter(name, fields[name], owners[name]) for name in fields}


def choices_of(axis: str) -> tuple[str, ...]:
    """The names that `policy`, `commit` or `cache` takes."""
    names = tuple(parts()[axis])
    return (NO_CACHE, *names) if axis == "cache" else names


def fields_for(given: Mapping[str, Any]) -> dict[str, FieldInfo]:
    """A field for every parameter there is. Two parts may mean different things by one name: the
    meaning of the one that is chosen counts."""
    fields = {name: parameter.field for name, parameter in parameters().items()}
    return fields | composed(parts_of(given)).model_fields


def from_words(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that were given as words, each as the type of its field."""
    fields = fields_for(given)
    return {
        name: from_word(name, fields[name], value)
        if isinstance(value, str | list) and name in fields
        else value
        for name, value in given.items()
    }


def summary_of(part: Any) -> str:
    """What a policy, rule or cache does: the first sentence of its own docstring."""
    own = getdoc(part) if part.__doc__ else None
    return (own or "").partition("\n")[0]


def schema() -> dict[str, Any]:
    """JSON-ready, for pages that build themselves from it.

    What a policy's entry leaves out are the parameters of the commit rule and the cache.
    """
    return {
        "common": list(DecodeParams.model_fields),
        "axes": {
            axis: {name: _part(part) for name, part in known.items()}
            for axis, known in parts().items()
        },
    }


def _part(part: Any) -> dict[str, Any]:
    presets = getattr(part.Params, "presets", {})
    return {
        "summary": summary_of(part),
        "own_commit": getattr(part, "rule", None) is not None,
        "presets": {preset: dict(values) for preset, values in presets.items()},
        "parameters": {
            name: _describe(field)
            for name, field in part.Params.model_fields.items()
            if name not in AXES
        },
    }


def _describe(field: FieldInfo) -> dict[str, Any]:
    return {
        "type": _type(field),
        "default": list(field.default) if isinstance(field.default, tuple) else field.default,
        "optional": is_optional(field),
        "choices": list(choices(field)),
        "bounds": bounds(field),
        "help": field.description,
        "takes": takes(field),
    }


def _type(field: FieldInfo) -> str:
    """integer, number, flag, choice or text; integers, numbers, … where it takes several."""
    if item := item_of(field):
        return f"{_type(item)}s"
    if choices(field) and bool not in kinds(field.annotation):
        return "choice"
    kind = next(kind for kind in kinds(field.annotation) if kind is not type(None))
    return {int: "integer", float: "number", bool: "flag"}.get(kind, "text")
