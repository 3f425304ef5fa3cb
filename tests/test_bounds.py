"""Every number that a process or a request takes has an upper bound, and the sentence says it."""

from typing import Any

import pytest

from rho_eos.base.errors import UserError
from rho_eos.base.settings import bounds, kinds, takes
from rho_eos.config import EngineConfig
from rho_eos.decoding.params import DecodeParams, composed, parts_of
from rho_eos.decoding.schema import AXES, choices_of
from rho_eos.server.config import ServerConfig

PARTS = [composed(parts_of({axis: name})) for axis in AXES for name in choices_of(axis)]
CLASSES = [EngineConfig, ServerConfig, *PARTS]
NUMBERS = [
    (each, name)
    for each in CLASSES
    for name, field in each.model_fields.items()
    if {int, float} & set(kinds(field.annotation))
]


@pytest.mark.parametrize(("of", "name"), NUMBERS, ids=lambda part: getattr(part, "__name__", part))
def test_it_is_bounded_and_beyond_is_refused(of: Any, name: str) -> None:
    field = of.model_fields[name]
    high = bounds(field).get("le", bounds(field).get("lt"))
    assert high is not None, f"{name} has no upper bound"
    given = {}
    if issubclass(of, DecodeParams):
        policy, rule, cache = of.parts
        given = {"policy": policy.name, "cache": cache.name if cache else "none"}
        given["commit"] = rule.name if policy.rule is None else policy.name
    for beyond in (type(high)(high * 2 + 1), 10**30, 10**5000, float("inf"), float("nan")):
        with pytest.raises(UserError) as refused:
            of(**given, **{name: beyond})
        said = str(refused.value)
        assert name in said and takes(field) in said and len(said) < 500
