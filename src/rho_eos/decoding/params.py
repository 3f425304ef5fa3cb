"""How one request is decoded: what all policies share, and the door to each policy's own.

`DecodeParams(policy="fixed", steps=16)` is an instance of that policy's own `Params`, a subclass of
this one. So a parameter that the chosen policy does not have is an unknown one, and is refused.
"""

from collections.abc import Mapping
from numbers import Integral
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from rho_eos.base.errors import UserError, did_you_mean
from rho_eos.base.settings import FewTexts, Settings, is_optional, setting

DEFAULT_POLICY = "rho-eos"
#: No canvas of any model comes near it; it only keeps a slip of the pen from taking all memory.
LONGEST = 2**20
MOST_SAMPLES = 2**16  # of one prompt, for the same reason


class DecodeParams(Settings):
    """The common part. The defaults are ρ-EOS as published: Asym, τ 0.9, block 32."""

    policy: str = setting(DEFAULT_POLICY, "decoding rule")
    initial_length: int = setting(
        64, "canvas length to start with; fixed keeps it", ge=1, le=LONGEST
    )
    max_new_tokens: int = setting(
        2048, "longest canvas (L_max); at most what the context leaves", ge=1, le=LONGEST
    )
    min_new_tokens: int = setting(0, "no end of text before this many tokens", ge=0, le=LONGEST)
    temperature: float = setting(0.0, "0 is greedy; above, tokens are drawn", ge=0, le=100)
    top_k: int | None = setting(None, "draw among the k most likely tokens", ge=1, le=LONGEST)
    top_p: float = setting(
        1.0, "draw among the likeliest tokens that together have this probability", gt=0, le=1
    )
    seed: int = setting(0, "seed of this request's draws", ge=0, le=2**64 - 1)
    cfg_scale: float = setting(
        0.0, "classifier-free guidance; above 0 it doubles the cost", ge=0, le=100
    )
    stop: FewTexts = setting((), "end the text before this string; repeatable")
    early_stop: bool = setting(True, "stop once the text is complete; same text, fewer steps")
    trace: bool = setting(False, "record every step")
    logprobs: int | None = setting(
        None,
        "report each token's log-probability when it was committed, and this many alternatives",
        ge=0,
        le=20,
    )
    cache: Literal["none", "window"] = setting(
        "none", "none: every forward computes every position; window: most compute a window only"
    )
    cache_window: int = setting(24, "MASKs that a window step computes", ge=1, le=LONGEST)
    cache_back: int = setting(16, "positions before the first MASK in it", ge=0, le=LONGEST)
    cache_commits: int = setting(48, "refresh after so many commits", ge=1, le=LONGEST)
    cache_steps: int = setting(24, "refresh after so many steps", ge=1, le=LONGEST)
    cache_unsure: float = setting(
        0.0, "refresh after a commit less confident than this", ge=0, le=1
    )

    #: The policy that these are the parameters of; set where the policy is registered.
    policy_name: ClassVar[str] = ""
    #: Values that go by one name: preset -> parameter -> value. What is given beats the preset.
    #: A policy that has some declares a field `preset`, whose choices are these names.
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __new__(cls, **given: Any) -> Self:
        if cls is not DecodeParams:
            return super().__new__(cls)
        from rho_eos.decoding.registry import find_policy, policy_of

        chosen: type[Self] = find_policy(policy_of(given)).Params  # type: ignore[assignment]
        return super().__new__(chosen)

    def __init__(self, **given: Any) -> None:  # which parameters there are, the policy knows
        super().__init__(**given)
        if given.get("initial_length") is None:
            # It follows from the rest, also where that is changed later.
            self.model_fields_set.discard("initial_length")
        if given.get("policy") is None and self.policy_name == DEFAULT_POLICY:
            self.model_fields_set.discard("policy")  # before text it is another one

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, given: dict[str, Any]) -> dict[str, Any]:
        """What was not given, where that depends on what was."""
        from rho_eos.decoding.registry import without_old_spelling

        given = without_old_spelling(given)
        # None means "not given", except where it is a value of the parameter.
        given = {
            name: value
            for name, value in given.items()
            if value is not None
            or (name in cls.model_fields and is_optional(cls.model_fields[name]))
        }
        filled = {"policy": cls.policy_name, **cls._defaults(given), **given}
        limit = filled.get("max_new_tokens")
        if "initial_length" not in filled and type(limit) is int and limit > 0:
            # Who only says how long a text may become did not ask for a longer start.
            filled["initial_length"] = min(cls.model_fields["initial_length"].default, limit)
        return filled

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if self.policy != self.policy_name:
            raise UserError(f"policy is {self.policy!r}, but these are for {self.policy_name!r}")
        limit = self.max_new_tokens
        self._check(
            "initial_length", self.initial_length <= limit, f"at most max_new_tokens, {limit}"
        )
        longest = self.longest
        self._check(
            "min_new_tokens", self.min_new_tokens <= longest, f"at most the length, {longest}"
        )
        return self

    def _check(self, field: str, ok: bool, takes: str) -> None:
        """For checks that look at several fields."""
        if not ok:
            raise UserError.of(field, getattr(self, field), takes)

    @classmethod
    def _defaults(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Values for what was not given, where they depend on what was: those of the preset."""
        preset = given.get("preset")
        return cls.presets.get(preset, {}) if isinstance(preset, str) else {}

    @classmethod
    def _unknown(cls, name: str) -> str:
        from rho_eos.decoding.registry import policies_with

        others = policies_with(name)
        if others:
            return (
                f"policy {cls.policy_name} has no parameter {name!r}; "
                f"it is one of {', '.join(others)}"
            )
        near = did_you_mean(name, cls.model_fields)
        known = f"; policy {cls.policy_name} takes {', '.join(cls.model_fields)}"
        return f"unknown parameter {name!r}{near or known}"

    @property
    def longest(self) -> int:
        """The longest canvas these parameters can lead to."""
        return self.max_new_tokens

    @property
    def region(self) -> tuple[float, float] | None:
        """The signals at which the length holds, for who draws them; None: there is no region."""
        return None

    def recorded(self) -> dict[str, Any]:
        """What an answer depends on, for files that say how it was made."""
        unused = {name for name in type(self).model_fields if name.startswith("cache_")}
        return self.model_dump(mode="json", exclude=unused if self.cache == "none" else None)

    @property
    def least_room(self) -> int:
        """Behind a prompt: for the canvas that was asked for, never less than a minimum length."""
        return max(self.initial_length, self.min_new_tokens)

    @property
    def first_length(self) -> int:
        """The canvas a request starts with."""
        return self.least_room

    @property
    def most_steps(self) -> int:
        """Forwards, for each gap, after which a policy that has not ended never will."""
        return 4 * self.max_new_tokens + 64

    @property
    def starts_anywhere(self) -> bool:
        """Whether this initial length, and any shorter one, makes no difference."""
        return False


def check_samples(n: Any) -> None:
    """How many samples of one prompt may be asked for."""
    whole = isinstance(n, Integral) and not isinstance(n, bool)
    if not whole or not 1 <= n <= MOST_SAMPLES:
        raise UserError.of("n", n, f"an integer from 1 to {MOST_SAMPLES}")


def seeded(params: DecodeParams, n: Any) -> list[DecodeParams]:
    """Those of n samples of one prompt: the i-th has seed + i, whatever it shares a batch with."""
    check_samples(n)
    return [params.replaced(seed=params.seed + offset) for offset in range(n)]


def merged(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A request's own parameters over defaults that were given for many requests.

    Where it names another policy than the defaults do, those of them that only the other policy has
    do not concern it.
    """
    from rho_eos.decoding.registry import find_policy, policy_of

    policy = policy_of({**defaults, **own})
    if policy == policy_of(defaults):
        return {**defaults, **own}
    known = find_policy(policy).Params.model_fields
    return {**{name: value for name, value in defaults.items() if name in known}, **own}
