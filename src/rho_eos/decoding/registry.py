"""Which policies there are: ours, found by being in `decoding/policies`, and other people's."""

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from pydantic import create_model

from rho_eos.base.errors import UserError
from rho_eos.base.plugins import load_entry_points
from rho_eos.decoding.params import DEFAULT_POLICY, DecodeParams
from rho_eos.decoding.policy import Policy

ENTRY_POINTS = "rho_eos.policies"

_policies: dict[str, type[Policy]] = {}
P = TypeVar("P", bound=type[Policy])


def register_policy(policy: P) -> P:
    """Make a policy known by its name; use it as a decorator or call it.

    Examples:
        >>> @register_policy
        ... class Mine(Policy):
        ...     name = "mine"
    """
    name = getattr(policy, "name", None)
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"{policy.__name__} needs a name to be registered by")
    known = _policies.get(name)
    if known is not None and known.__module__ != policy.__module__:
        raise ValueError(f"a policy named {name!r} is registered already, by {known.__module__}")
    if not (isinstance(policy.Params, type) and issubclass(policy.Params, DecodeParams)):
        raise ValueError(f"the Params of policy {name!r} must be a subclass of DecodeParams")
    if policy.Params.policy_name not in ("", name) or policy.Params is DecodeParams:
        policy.Params = _own_class(policy)  # it shares its parameters, not its name
    policy.Params.policy_name = name
    _policies[name] = policy
    return policy


def policies() -> Mapping[str, type[Policy]]:
    """All policies by name: the default one, the others of ours, then those from outside."""
    _load()
    names = sorted(_policies, key=lambda name: (name != DEFAULT_POLICY, _is_foreign(name), name))
    return {name: _policies[name] for name in names}


def foreign_policies() -> list[type[Policy]]:
    """Those that are not ours."""
    return [policy for name, policy in policies().items() if _is_foreign(name)]


def find_policy(name: Any) -> type[Policy]:
    known = policies()
    if not isinstance(name, str) or name not in known:
        owners = [owner for owner, policy in known.items() if name in [*policy.Params.presets]]
        hint = f"; {name} is a preset of {owners[0]}" if owners else ""
        raise UserError.of("policy", name, f"one of {', '.join(known)}{hint}")
    return known[name]


def policies_with(parameter: str) -> list[str]:
    return [name for name, policy in policies().items() if parameter in policy.Params.model_fields]


def policy_of(given: Mapping[str, Any]) -> Any:
    """The policy that parameters name, or the default."""
    name = without_old_spelling(given).get("policy")
    return DEFAULT_POLICY if name is None else name


def without_old_spelling(given: Mapping[str, Any]) -> dict[str, Any]:
    """Before it was a policy, the released code's rule was a preset: old files say so."""
    given = dict(given)
    if given.get("preset") == "released" and given.get("policy") in (None, "rho-eos", "released"):
        given |= {"policy": "released"}
        del given["preset"]
    return given


def _is_foreign(name: str) -> bool:
    return not _policies[name].__module__.startswith("rho_eos.decoding.")


def _own_class(policy: type[Policy]) -> type[DecodeParams]:
    own = create_model("Params", __base__=policy.Params, __module__=policy.__module__)
    own.__qualname__ = f"{policy.__qualname__}.Params"  # where pickle finds it again
    return own


def _register_found(policy: Any) -> None:
    if not (isinstance(policy, type) and issubclass(policy, Policy)):
        raise TypeError(f"{policy!r} is no Policy")
    register_policy(policy)


@cache
def _load() -> None:
    from rho_eos.decoding import policies as ours

    for module in pkgutil.iter_modules(ours.__path__):
        importlib.import_module(f"{ours.__name__}.{module.name}")
    load_entry_points(ENTRY_POINTS, _register_found)
