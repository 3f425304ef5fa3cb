"""Every knob, validated once: `EngineConfig` for a process, `DecodeParams` for a request.

The command line, HTTP, lm-eval and Ray all build these through `from_mapping`, so an unknown key or
a bad value gives the same sentence everywhere: the field, what it got, what it takes.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from rho_eos.errors import UserError

POLICIES = ("rho-eos", "fixed", "daedal")
SIGNALS = ("density", "confidence")
EXPANSIONS = ("constant", "linear", "exponential")
#: Equilibrium regions [ρ_low, ρ_high]; `released` also follows the released code's own rule.
PRESETS = {"asym": (0.4, 0.8), "sym": (0.2, 0.8), "released": (0.4, 0.8)}
#: DAEDAL's two thresholds on EOS confidence: end of stage 1, end of insertions in stage 2.
DAEDAL_REGION = (0.5, 0.9)
DTYPES = ("auto", "float32", "bfloat16", "float16")


class _Validated:
    """Shared by both configurations: construction from a mapping and the error sentences."""

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        for key in mapping:
            if key not in known:
                raise UserError(f"unknown parameter {key!r}; known are {', '.join(known)}")
        return cls(**mapping)

    def _check(self, field: str, ok: bool, takes: str) -> None:
        if not ok:
            raise UserError(f"{field} is {getattr(self, field)!r}, but takes {takes}")

    def _check_integer(self, field: str, least: int, optional: bool = False) -> None:
        value = getattr(self, field)
        if optional and value is None:
            return
        ok = isinstance(value, int) and not isinstance(value, bool) and value >= least
        self._check(field, ok, f"an integer of at least {least}{' or none' if optional else ''}")

    def _check_number(self, field: str, ok: Any, takes: str) -> None:
        value = getattr(self, field)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        self._check(field, number and math.isfinite(value) and ok(value), takes)

    def _check_choice(self, field: str, choices: Any) -> None:
        takes = ", ".join("none" if choice is None else choice for choice in choices)
        self._check(field, getattr(self, field) in choices, f"one of {takes}")

    def _check_flag(self, field: str) -> None:
        self._check(field, isinstance(getattr(self, field), bool), "true or false")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeParams(_Validated):
    """How one request is decoded. The defaults are ρ-EOS as published: Asym, τ 0.9, block 32."""

    policy: str = "rho-eos"
    #: ρ-EOS region by name; `rho_low` and `rho_high`, where given, take its place.
    preset: str = "asym"
    rho_low: float | None = None
    rho_high: float | None = None
    #: What is compared with the region; None: density for ρ-EOS, confidence for DAEDAL.
    signal: str | None = None
    #: L_init and L_max. The fixed policy decodes a canvas of exactly `initial_length`.
    initial_length: int = 64
    max_new_tokens: int = 2048
    min_new_tokens: int = 0
    #: τ: MASKs more confident than this are committed at once.
    threshold: float = 0.9
    #: Fixed policy only: spread the commits evenly over so many steps, instead of the τ rule.
    steps: int | None = None
    block_length: int | None = 32
    #: E(ρ): base · m(steps of `interval` away from the region), m capped.
    expansion: str = "exponential"
    expansion_base: int = 8
    expansion_interval: float = 0.1
    expansion_cap: int = 8
    #: N: the length may change during the first N steps.
    horizon: int = 64
    temperature: float = 0.0
    seed: int = 0
    cfg_scale: float = 0.0
    stop: tuple[str, ...] = ()
    #: Commit EOS in a block only when nothing else is left in it (LLaDA: confidence_eos_eot_inf).
    defer_eos: bool = False
    early_stop: bool = True
    trace: bool = False

    def __post_init__(self) -> None:
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        object.__setattr__(self, "stop", stop)
        self._check_choice("policy", POLICIES)
        self._check_choice("preset", PRESETS)
        self._check_choice("signal", (None, *SIGNALS))
        self._check_choice("expansion", EXPANSIONS)
        for field in ("initial_length", "max_new_tokens", "expansion_base", "expansion_cap"):
            self._check_integer(field, 1)
        for field in ("min_new_tokens", "horizon", "seed"):
            self._check_integer(field, 0)
        self._check_integer("steps", 1, optional=True)
        self._check_integer("block_length", 1, optional=True)
        self._check_number("threshold", lambda t: 0 < t <= 1, "a number in (0, 1]")
        self._check_number("expansion_interval", lambda i: 0 < i <= 1, "a number in (0, 1]")
        self._check_number("temperature", lambda t: t >= 0, "a number of at least 0")
        self._check_number("cfg_scale", lambda s: s >= 0, "a number of at least 0")
        for field in ("rho_low", "rho_high"):
            if getattr(self, field) is not None:
                self._check_number(field, lambda r: 0 <= r <= 1, "a number in [0, 1]")
        for field in ("defer_eos", "early_stop", "trace"):
            self._check_flag(field)
        texts = all(isinstance(text, str) and text for text in self.stop)
        self._check("stop", texts, "a non-empty string or a list of them")
        self._check_relations()

    def _check_relations(self) -> None:
        low, high = self.region
        if low > high:
            raise UserError(f"rho_low is {low}, but takes at most rho_high, which is {high}")
        limit = self.max_new_tokens
        self._check(
            "initial_length", self.initial_length <= limit, f"at most max_new_tokens, {limit}"
        )
        most = self.initial_length if self.policy == "fixed" else limit
        self._check("min_new_tokens", self.min_new_tokens <= most, f"at most the length, {most}")
        if self.steps is not None:
            self._check("steps", self.policy == "fixed", "a value only with policy fixed")
            self._check(
                "steps",
                self.steps <= self.initial_length,
                f"at most the length, {self.initial_length}",
            )
        if self.preset == "released" and self.policy == "rho-eos":
            self._check("signal", self.signal != "density", "confidence with preset released")

    @property
    def region(self) -> tuple[float, float]:
        """[ρ_low, ρ_high] with what is not given taken from the preset."""
        uses_daedal_region = self.policy == "daedal" and self.resolved_signal == "confidence"
        low, high = DAEDAL_REGION if uses_daedal_region else PRESETS[self.preset]
        return (
            low if self.rho_low is None else self.rho_low,
            high if self.rho_high is None else self.rho_high,
        )

    @property
    def resolved_signal(self) -> str:
        if self.signal is not None:
            return self.signal
        published = self.policy == "daedal" or self.preset == "released"
        return "confidence" if published else "density"

    @property
    def first_length(self) -> int:
        """The canvas a request starts with: never shorter than its minimum length."""
        return max(self.initial_length, self.min_new_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig(_Validated):
    """What a process decides once: which model, where it runs, how much runs together."""

    model: str = "tiny"
    revision: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    #: Rows per forward, and Σ (prompt + canvas) per forward.
    max_rows: int = 32
    max_positions: int = 16384
    #: The largest piece of logits held at once.
    logits_megabytes: int = 64
    mask_token_id: int | None = None
    eos_token_id: int | None = None
    end_of_turn_id: int | None = None

    def __post_init__(self) -> None:
        self._check("model", isinstance(self.model, str) and bool(self.model), "a folder or Hub id")
        self._check_choice("dtype", DTYPES)
        for field in ("max_rows", "max_positions", "logits_megabytes"):
            self._check_integer(field, 1)
        for field in ("mask_token_id", "eos_token_id", "end_of_turn_id"):
            self._check_integer(field, 0, optional=True)
