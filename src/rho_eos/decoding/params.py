"""How one request is decoded: what all requests share, and the door to each part's own.

A request is decoded by a length policy, a commit rule and perhaps a cache, and each has parameters
of its own. `DecodeParams(policy="fixed", commit="quota", steps=16)` is an instance of a class that
is composed of theirs. So a parameter that none of the three has is an unknown one, and is refused.
"""

from collections.abc import Mapping
from functools import cache
from inspect import get_annotations
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import create_model, model_validator

from rho_eos.base.errors import UserError, did_you_mean
from rho_eos.base.registry import code_of
from rho_eos.base.settings import FewIds, FewTexts, Settings, is_optional, setting

if TYPE_CHECKING:
    from rho_eos.decoding.cache import Cache
    from rho_eos.decoding.commit import CommitRule
    from rho_eos.decoding.policy import Policy

DEFAULT_POLICY = "rho-eos"
DEFAULT_COMMIT = "threshold"
NO_CACHE = "none"
#: No canvas of any model comes near it; it only keeps a slip of the pen from taking all memory.
LONGEST = 2**20
MOST_SAMPLES = 2**16  # of one prompt, for the same reason


class Parts(NamedTuple):
    """What decodes a request: how long, which tokens, what is computed."""

    policy: "type[Policy]"
    commit: "type[CommitRule]"
    cache: "type[Cache] | None"


class DecodeParams(Settings):
    """What all requests share. The defaults are ρ-EOS as published: Asym, τ 0.9, block 32."""

    policy: str = setting(DEFAULT_POLICY, "how long: the length policy")
    commit: str = setting(DEFAULT_COMMIT, "which tokens: the commit rule")
    cache: str = setting(
        NO_CACHE, "what is computed: none is exact, a cache computes less in most steps"
    )
    initial_length: int = setting(
        64, "canvas length to start with; fixed keeps it", ge=1, le=LONGEST
    )
    max_new_tokens: int = setting(
        2048, "longest canvas (L_max); at most what the context leaves", ge=1, le=LONGEST
    )
    min_new_tokens: int = setting(0, "no end of text before this many tokens", ge=0, le=LONGEST)
    temperature: float = setting(
        0.0,
        "0 is greedy; above, tokens are drawn, of which rules keep the likely ones",
        ge=0,
        le=100,
    )
    top_k: int | None = setting(None, "draw among the k most likely tokens", ge=1, le=LONGEST)
    top_p: float = setting(
        1.0, "draw among the likeliest tokens that together have this probability", gt=0, le=1
    )
    seed: int = setting(0, "seed of this request's draws", ge=0, le=2**64 - 1)
    cfg_scale: float = setting(
        0.0, "classifier-free guidance; above 0 it doubles the cost", ge=0, le=100
    )
    stop: FewTexts = setting((), "end the text before this string; repeatable")
    stop_token_ids: FewIds = setting((), "end the text before this token; repeatable")
    early_stop: bool = setting(True, "stop once the text is complete; same text, fewer steps")
    trace: bool | Literal["positions"] = setting(
        False, "record every step; positions: also what the model said at each MASK"
    )
    logprobs: int | None = setting(
        None,
        "report each token's log-probability when it was committed, and this many alternatives",
        ge=0,
        le=20,
    )

    #: What these are the parameters of; set where they are composed.
    parts: ClassVar[Parts | None] = None
    #: Values that go by one name: preset -> parameter -> value. What is given beats the preset.
    #: A policy that has some declares a field `preset`, whose choices are these names.
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __new__(cls, **given: Any) -> Self:
        if cls.parts is not None:
            return super().__new__(cls)
        chosen: type[Self] = composed(parts_of(given))  # type: ignore[assignment]
        return super().__new__(chosen)

    def __init__(self, **given: Any) -> None:  # the parts know which parameters there are
        super().__init__(**given)
        if given.get("initial_length") is None:
            # It follows from the rest, also where that is changed later.
            self.model_fields_set.discard("initial_length")
        for axis in ("policy", "commit", "cache"):  # what was not chosen may still be chosen
            if given.get(axis) is None:
                self.model_fields_set.discard(axis)

    def __reduce__(self) -> Any:
        return _made_again, (self.model_dump(exclude_unset=True),)

    def replaced(self, **changes: Any) -> Self:
        """The same with some values changed, and checked again."""
        given = {**self.model_dump(exclude_unset=True), **changes}
        return DecodeParams(**given)  # type: ignore[return-value]

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Add the values that were not given but follow from what was."""
        # None means "not given", except where it is a value of the parameter.
        given = {
            name: value
            for name, value in given.items()
            if value is not None
            or (name in cls.model_fields and is_optional(cls.model_fields[name]))
        }
        assert cls.parts is not None
        policy, rule, _ = cls.parts
        names = {"policy": policy.name, "commit": rule.name if policy.rule is None else policy.name}
        filled = {**names, **cls._defaults(given), **given}
        limit = filled.get("max_new_tokens")
        if "initial_length" not in filled and type(limit) is int and limit > 0:
            # Who only says how long a text may become did not ask for a longer start.
            filled["initial_length"] = min(cls.model_fields["initial_length"].default, limit)
        return filled

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        limit, longest = self.max_new_tokens, self.longest
        self._check(
            "initial_length", self.initial_length <= limit, f"at most max_new_tokens, {limit}"
        )
        self._check(
            "min_new_tokens", self.min_new_tokens <= longest, f"at most the length, {longest}"
        )
        return self

    @classmethod
    def _defaults(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Defaults that depend on what was given: the values of its preset."""
        preset = given.get("preset")
        return cls.presets.get(preset, {}) if isinstance(preset, str) else {}

    @classmethod
    def _unknown(cls, name: str) -> str:
        from rho_eos.decoding.schema import parameters

        assert cls.parts is not None
        chosen = f"policy {cls.parts.policy.name}"
        others = parameters().get(name)
        if others is not None:
            return f"{chosen} has no parameter {name!r}; it is one of {', '.join(others.owners)}"
        near = did_you_mean(name, cls.model_fields) or did_you_mean(name, parameters())
        known = f"; {chosen} takes {', '.join(cls.model_fields)}"
        return f"unknown parameter {name!r}{near or known}"

    @property
    def longest(self) -> int:
        """The longest canvas these parameters can lead to."""
        return self.max_new_tokens

    @property
    def region(self) -> tuple[float, float] | None:
        """The lowest and the highest signal at which the length stays, for figures; None: any."""
        return None

    def recorded(self) -> dict[str, Any]:
        """What an answer depends on, for files that say how it was made."""
        return self.model_dump(mode="json")

    def code(self) -> dict[str, str]:
        """Of its parts from outside a hash of their code, on which an answer depends as well."""
        assert self.parts is not None
        parts = self.parts._asdict().items()
        codes = {f"{axis} {each.name}": code_of(each) for axis, each in parts if each is not None}
        return {f"code of {name}": code for name, code in codes.items() if code is not None}

    @property
    def least_room(self) -> int:
        """Positions that must be free behind a prompt: the first canvas, or a longer minimum."""
        return max(self.initial_length, self.min_new_tokens)

    @property
    def first_length(self) -> int:
        """The canvas a request starts with."""
        return self.least_room

    @property
    def most_steps(self) -> int:
        """A policy that needs more forwards than this for a gap is taken to run for ever."""
        return 4 * self.max_new_tokens + 64

    @property
    def starts_anywhere(self) -> bool:
        """Whether this initial length, and any shorter one, makes no difference."""
        return False


def parts_of(given: Mapping[str, Any]) -> Parts:
    """The policy, the rule and the cache that parameters name, or the default ones."""
    from rho_eos.decoding.registry import COMMITS, find_cache, find_policy

    def chosen(axis: str, default: str) -> Any:
        name = given.get(axis)
        return default if name is None else name

    policy = find_policy(chosen("policy", DEFAULT_POLICY))
    cache = find_cache(chosen("cache", NO_CACHE))
    if policy.rule is None:
        default = _implied_commit(given) or DEFAULT_COMMIT
        return Parts(policy, COMMITS.find(chosen("commit", default)), cache)
    if chosen("commit", policy.name) != policy.name:
        raise UserError(
            f"policy {policy.name} has a commit rule of its own, so commit is not taken"
        )
    return Parts(policy, policy.rule, cache)


def _implied_commit(given: Mapping[str, Any]) -> str | None:
    """The commit rule that one of these parameters stands for; None: they stand for none."""
    from rho_eos.decoding.registry import COMMITS

    for name, rule in COMMITS.all().items():
        if any(given.get(each) is not None for each in rule.implied_by):
            return name
    return None


@cache
def composed(parts: Parts) -> type[DecodeParams]:
    """The parameters of these three together. The policy's own declaration of a name counts."""
    bases: list[Any] = [part.Params for part in parts if part is not None]
    name = "-".join(part.name for part in parts if part is not None)
    # A class that another one of them extends already adds nothing.
    own_bases = [base for base in dict.fromkeys(bases) if not _is_extended(base, bases)]
    own: type[DecodeParams] = create_model(name, __base__=tuple(own_bases))
    # pydantic takes a field from the first base that has it, also where that one only inherits it.
    fields: dict[str, Any] = {}
    for field, info in own.model_fields.items():
        homes: Any = (each for each in own.__mro__[1:] if field in get_annotations(each))
        declared = next(homes).model_fields[field]
        if declared != info:
            fields[field] = declared.annotation, declared
    if fields:
        own = create_model(name, __base__=tuple(own_bases), **fields)
    own.parts = parts
    return own


def _is_extended(base: type, bases: list[type]) -> bool:
    return any(other is not base and issubclass(other, base) for other in bases)


def _made_again(given: Mapping[str, Any]) -> DecodeParams:
    return DecodeParams(**given)


def check_samples(n: Any) -> None:
    """How many samples of one prompt may be asked for."""
    whole = isinstance(n, Integral) and not isinstance(n, bool)
    if not whole or not 1 <= n <= MOST_SAMPLES:
        raise UserError.of("n", n, f"an integer from 1 to {MOST_SAMPLES}")


def merged(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A request's own parameters over defaults that were given for many requests.

    Where it names another policy, rule or cache than the defaults do, those defaults that only the
    others have do not concern it. A parameter that the rule of the defaults does not have, and that
    stands for another rule, names that rule. None means "not given", except where it is a value of
    the parameter.
    """
    from rho_eos.decoding.registry import find_policy
    from rho_eos.decoding.schema import parameters

    said = {name: value for name, value in own.items() if value is not None}
    both = {**defaults, **said}
    policy = find_policy(both.get("policy") or DEFAULT_POLICY)
    usual = "commit" not in said and both.get("commit") is not None and policy.rule is None
    implied = _implied_commit(said) if usual else None
    if implied and not said.keys() <= composed(parts_of(both)).model_fields.keys():
        both["commit"] = said["commit"] = implied
    chosen = any(name in said for name in ("policy", "commit", "cache"))
    if not chosen and len(said) == len(own):
        return both
    if chosen and "commit" not in said and policy.rule is not None:
        both.pop("commit", None)
    known = composed(parts_of(both)).model_fields
    nones = (name for name in own.keys() - said.keys() if name in known)
    both |= {name: None for name in nones if is_optional(known[name])}
    if not chosen:
        return both
    others = parameters()
    return {
        name: value
        for name, value in both.items()
        if name in own or name in known or name not in others
    }
