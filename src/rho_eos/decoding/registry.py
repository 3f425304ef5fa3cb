"""Which length policies, commit rules and caches there are: ours, and other people's."""

from typing import Any, TypeVar

from rho_eos.base.errors import UserError, one_of
from rho_eos.base.registry import Registry
from rho_eos.base.settings import Settings
from rho_eos.decoding.cache import Cache
from rho_eos.decoding.commit import CommitParams, CommitRule
from rho_eos.decoding.params import DEFAULT_POLICY, NO_CACHE, DecodeParams
from rho_eos.decoding.policy import Policy

P = TypeVar("P", bound=type[Policy])
C = TypeVar("C", bound=type[CommitRule])
K = TypeVar("K", bound=type[Cache])


def register_policy(policy: P) -> P:
    """Make a length policy known by its name; use it as a decorator or call it.

    Examples:
        >>> @register_policy
        ... class Mine(Policy):
        ...     name = "mine"
    """
    return _register(POLICIES, policy, Policy, DecodeParams)


def register_commit(rule: C) -> C:
    """Make a commit rule known by its name; use it as a decorator or call it."""
    return _register(COMMITS, rule, CommitRule, CommitParams)


def register_cache(cache: K) -> K:
    """Make a cache known by its name; use it as a decorator or call it."""
    if getattr(cache, "name", None) == NO_CACHE:
        raise UserError(f"no cache can be named {NO_CACHE!r}: that is what runs without one")
    return _register(CACHES, cache, Cache, Settings)


def _register(registry: Registry[Any], part: Any, kind: type, params: type) -> Any:
    if not (isinstance(part, type) and issubclass(part, kind)):
        raise UserError(f"{part!r} is no {registry.kind}: it must be a subclass of {kind.__name__}")
    own = getattr(part, "Params", None)
    if not (isinstance(own, type) and issubclass(own, params)):
        raise UserError(
            f"the Params of {registry.kind} {part.__name__} must be a subclass of {params.__name__}"
        )
    registry.add(getattr(part, "name", None), part, part.__module__)
    return part


POLICIES: Registry[type[Policy]] = Registry(
    "policy", "rho_eos.decoding.policies", "rho_eos.policies", register_policy
)
COMMITS: Registry[type[CommitRule]] = Registry(
    "commit", "rho_eos.decoding.commits", "rho_eos.commits", register_commit
)
CACHES: Registry[type[Cache]] = Registry(
    "cache", "rho_eos.decoding.caches", "rho_eos.caches", register_cache
)


def policies() -> dict[str, type[Policy]]:
    """All length policies by name: the default one, the others of ours, then those from outside."""
    known = POLICIES.all()
    return {DEFAULT_POLICY: known[DEFAULT_POLICY]} | known


def find_policy(name: Any) -> type[Policy]:
    """The policy of this name, or a sentence that says which there are."""
    known = policies()
    if not isinstance(name, str) or name not in known:
        owners = [owner for owner, policy in known.items() if name in [*policy.Params.presets]]
        hint = f"; {name} is a preset of {owners[0]}" if owners else ""
        raise UserError.of("policy", name, f"{one_of(known, name)}{hint}")
    return known[name]


def find_cache(name: Any) -> type[Cache] | None:
    """The cache of this name; None for `none`."""
    if name == NO_CACHE:
        return None
    known = CACHES.all()
    if not isinstance(name, str) or name not in known:
        raise UserError.of("cache", name, one_of([NO_CACHE, *known], name))
    return known[name]
