"""Every setting refuses what it does not take in a sentence that says what it takes; every number
has an upper bound."""

from typing import Any

import pytest
from pydantic.fields import FieldInfo

from rho_eos.base.errors import UserError
from rho_eos.base.settings import bounds, choices, kinds, takes
from rho_eos.config import EngineConfig
from rho_eos.decoding.params import DecodeParams, composed, parts_of
from rho_eos.decoding.schema import AXES, choices_of
from rho_eos.server.config import ServerConfig

PARTS = [composed(parts_of({axis: name})) for axis in AXES for name in choices_of(axis)]
CLASSES = [EngineConfig, ServerConfig, *PARTS]
FIELDS = [(each, name) for each in CLASSES for name in each.model_fields if name not in AXES]


def bad_values(field: FieldInfo) -> list[Any]:
    """What no field of this kind takes."""
    admitted = {*kinds(field.annotation)} - {type(None)}
    if bool in admitted:
        return ["no", 1]
    if choices(field):
        return ["no such word", ["asym"]]
    if not admitted & {int, float}:
        return []
    limits = bounds(field)
    high = limits.get("le", limits.get("lt"))
    assert high is not None, "there is no upper bound"
    low = limits.get("ge", limits.get("gt", 0))
    below = [low - 1] + [low] * ("gt" in limits)
    return [*below, type(high)(high * 2 + 1), 10**30, 10**5000, float("inf"), float("nan"), "x"]


@pytest.mark.parametrize(("of", "name"), FIELDS, ids=lambda part: getattr(part, "__name__", part))
def test_what_a_field_does_not_take_is_refused_in_words(of: Any, name: str) -> None:
    field = of.model_fields[name]
    given = {}
    if issubclass(of, DecodeParams):
        policy, rule, cache = of.parts
        given = {"policy": policy.name, "cache": cache.name if cache else "none"}
        given["commit"] = rule.name if policy.rule is None else policy.name
    for bad in bad_values(field):
        with pytest.raises(UserError) as refused:
            of(**given, **{name: bad})
        said = str(refused.value)
        assert refused.value.field == name
        assert name in said and takes(field) in said and len(said) < 500
