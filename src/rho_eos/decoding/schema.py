"""One description of all policies and their parameters, read by every edge.

The command line makes its options from it, the server its request fields, the playground its form.
A policy that is registered is in all of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from rho_eos.base.settings import bounds, choices, from_word, is_optional, item_of, kinds, takes
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.registry import policies, policy_of


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter under one name; policies that have it may differ in default and bounds."""

    name: str
    field: FieldInfo  # what all share, or of the first policy that has it
    owners: Mapping[str, FieldInfo]

    @property
    def policies(self) -> tuple[str, ...]:
        return tuple(self.owners)

    @property
    def common(self) -> bool:
        return self.name in DecodeParams.model_fields

    @property
    def help(self) -> str:
        """What it is for, and where a policy means something else by it or has another default."""
        told = str(self.field.description)
        for policy, own in self.owners.items():
            if own.description != self.field.description:
                default = "" if own.default is None else f" ({own.default})"
                told += f"; {policy}: {own.description}{default}"
            elif own.default != self.field.default and self.name != "policy":
                told += f"; {policy}: {own.default}"
        return told


def parameters() -> Mapping[str, Parameter]:
    """Those of all policies: first what they share, then each policy's own."""
    fields: dict[str, FieldInfo] = dict(DecodeParams.model_fields)
    owners: dict[str, dict[str, FieldInfo]] = {}
    for name, policy in policies().items():
        for parameter, field in policy.Params.model_fields.items():
            fields.setdefault(parameter, field)
            owners.setdefault(parameter, {})[name] = field
    return {name: Parameter(name, fields[name], owners[name]) for name in fields}


def fields_for(given: Mapping[str, Any]) -> dict[str, FieldInfo]:
    """A field for every parameter there is. Two policies may mean different things by one name:
    the meaning of the one that is chosen counts."""
    fields = {name: parameter.field for name, parameter in parameters().items()}
    chosen = policies().get(policy_of(given))
    return fields | (chosen.Params.model_fields if chosen is not None else {})


def from_words(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that were given as words, each as the type of its field."""
    fields = fields_for(given)
    return {
        name: from_word(name, fields[name], value)
        if isinstance(value, str | list) and name in fields
        else value
        for name, value in given.items()
    }


def schema() -> dict[str, Any]:
    """JSON-ready, for pages that build themselves from it."""
    return {
        "common": list(DecodeParams.model_fields),
        "policies": {
            name: {
                "title": policy.title or name,
                "summary": policy.summary,
                "presets": {
                    preset: dict(values) for preset, values in policy.Params.presets.items()
                },
                "parameters": {
                    parameter: _describe(field)
                    for parameter, field in policy.Params.model_fields.items()
                    if parameter != "policy"
                },
            }
            for name, policy in policies().items()
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
    if choices(field):
        return "choice"
    kind = next(kind for kind in kinds(field.annotation) if kind is not type(None))
    return {int: "integer", float: "number", bool: "flag"}.get(kind, "text")
