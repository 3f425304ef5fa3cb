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


def setting(default: Any, help: str) -> Any:
    """A field with the one sentence that every edge shows for it."""
    return dataclasses.field(default=default, metadata={"help": help})


class Validated:
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
        # A tuple compares where a dict would hash: a list in JSON is a bad value, not a crash.
        self._check(field, getattr(self, field) in tuple(choices), f"one of {takes}")

    def _check_flag(self, field: str) -> None:
        self._check(field, isinstance(getattr(self, field), bool), "true or false")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeParams(Validated):
    """How one request is decoded. The defaults are ρ-EOS as published: Asym, τ 0.9, block 32."""

    policy: str = setting("rho-eos", "decoding rule: rho-eos, fixed or daedal")
    preset: str = setting("asym", "equilibrium region: asym, sym, or released (the released code)")
    rho_low: float | None = setting(None, "expand below this signal (default: the preset's)")
    rho_high: float | None = setting(None, "contract above this signal (default: the preset's)")
    signal: str | None = setting(
        None, "what is compared with the region: density or confidence (default: the policy's own)"
    )
    initial_length: int = setting(64, "canvas length to start with; fixed keeps it")
    max_new_tokens: int = setting(2048, "longest canvas (L_max); at most what the context leaves")
    min_new_tokens: int = setting(0, "no end of text before this many tokens")
    threshold: float = setting(0.9, "commit every MASK more confident than this (τ)")
    steps: int | None = setting(
        None, "fixed only: commit an equal share in each of so many steps, instead of the τ rule"
    )
    block_length: int | None = setting(32, "commit within one block at a time; none: anywhere")
    expansion: str = setting("exponential", "E(ρ): constant, linear or exponential")
    expansion_base: int = setting(8, "smallest change of length, in tokens")
    expansion_interval: float = setting(0.1, "distance of ρ to the region that is one step of E")
    expansion_cap: int = setting(8, "largest multiple of the base")
    spare_content: bool = setting(
        False, "drop only MASKs that would become EOS (the paper drops any, E(ρ) from the end)"
    )
    horizon: int = setting(64, "the length may change during the first so many steps (N)")
    temperature: float = setting(0.0, "0 is greedy; above, Gumbel noise from the seed")
    seed: int = setting(0, "seed of this request's noise")
    cfg_scale: float = setting(0.0, "classifier-free guidance; above 0 it doubles the cost")
    stop: tuple[str, ...] = setting((), "end the text before this string")
    defer_eos: bool = setting(False, "commit EOS in a block only when nothing else is left in it")
    early_stop: bool = setting(True, "stop once the text is complete; same text, fewer steps")
    trace: bool = setting(False, "record every step")

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        elif isinstance(self.stop, list | None):
            object.__setattr__(self, "stop", tuple(self.stop or ()))
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
        for field in ("spare_content", "defer_eos", "early_stop", "trace"):
            self._check_flag(field)
        texts = isinstance(self.stop, tuple) and all(
            isinstance(text, str) and text for text in self.stop
        )
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
            self._check("spare_content", not self.spare_content, "false with preset released")
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
class EngineConfig(Validated):
    """What a process decides once: which model, where it runs, how much runs together."""

    model: str = setting("tiny", "tiny (built in), a checkpoint folder, or a Hub id")
    revision: str | None = setting(None, "branch, tag or commit of a Hub model")
    device: str = setting("auto", "auto, cpu, cuda, cuda:N or mps")
    dtype: str = setting("auto", "auto, float32, bfloat16 or float16")
    max_rows: int = setting(32, "sequences per forward")
    max_positions: int = setting(16384, "prompt and canvas positions per forward, over all rows")
    logits_megabytes: int = setting(64, "largest piece of logits held at once")
    mask_token_id: int | None = setting(None, "MASK id, if not the checkpoint's")
    eos_token_id: int | None = setting(None, "EOS id, if not the checkpoint's")
    end_of_turn_id: int | None = setting(None, "end-of-turn id, if not the tokenizer's")

    def __post_init__(self) -> None:
        self._check("model", isinstance(self.model, str) and bool(self.model), "a folder or Hub id")
        self._check_choice("dtype", DTYPES)
        for field in ("max_rows", "max_positions", "logits_megabytes"):
            self._check_integer(field, 1)
        for field in ("mask_token_id", "eos_token_id", "end_of_turn_id"):
            self._check_integer(field, 0, optional=True)
