"""Every way to choose a length, side by side: what the targets `lengths` and `stress` run.

A contender is a policy with some of its parameters. It is run from every initial length, at every τ
and with every kind of cache of the survey; nothing else differs between two rows. `lengths` asks
what a policy costs and whether it keeps the answers right; `stress` asks the same of a model that
answers more briefly on a short canvas, where the question is who is deceived by that.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rho_eos.base.errors import UserError
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.registry import foreign_policies, policies
from rho_eos.reproduce.plan import ASYM, DAEDAL, RHO_ASYM, RHO_SYM, SYM, Plan, Row
from rho_eos.reproduce.profiles import Profile

FIXED = "fixed"
THRESHOLDS = (0.999, 0.9)
CACHES = {"none": "exact", "window": "window cache"}
#: Ours, and other people's rules, that need no more than a prompt; by name, where they are there.
OTHERS = ("released", "blocks", "landing", "frontier", "scout")


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to choose a length."""

    name: str  # for --policies
    label: str
    given: Mapping[str, Any]  # the policy and its parameters, all others at their defaults


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyRow(Row):
    contender: Contender
    start: int
    threshold: float
    cache: str

    @property
    def section(self) -> str:
        return f"τ {self.threshold:g}, {CACHES[self.cache]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey(Plan):
    """`rows` are those that were asked for now; the table shows all of `every` that are there."""

    every: tuple[SurveyRow, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """What one of the surveys is made of."""

    title: str
    more_fixed: bool = False  # also the fixed lengths between the initial ones
    left_out: tuple[str, ...] = ()  # contenders


SURVEYS = {
    "lengths": Kind(
        "Every way to choose a length",
        left_out=("narrow", "confidence"),  # other settings of a policy that takes part
    ),
    "stress": Kind(
        "Every way to choose a length, on a model that may compress its answers", more_fixed=True
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Which part of a survey to run; empty: all of it."""

    policies: Sequence[str] = ()
    lengths: Sequence[str] = ()
    thresholds: Sequence[str] = ()
    caches: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.policies or self.lengths or self.thresholds or self.caches)


def contenders() -> list[Contender]:
    """In the order of the table: fixed, the published ones, ours, those from outside."""
    found = policies()
    return [
        Contender(FIXED, "fixed", {"policy": "fixed"}),
        Contender("daedal", DAEDAL, {"policy": "daedal"}),
        _rho_eos("sym", RHO_SYM, SYM),
        _rho_eos("asym", RHO_ASYM, ASYM),
        _rho_eos("narrow", "ρ-EOS [0.4, 0.6]", (0.4, 0.6)),
        _rho_eos("confidence", "Asym by EOS confidence", ASYM, signal="confidence"),
        *(_as_it_is(name, found[name].title) for name in OTHERS if name in found),
        *(_as_it_is(policy.name, policy.title) for policy in foreign_policies()),
    ]


def _rho_eos(name: str, label: str, region: tuple[float, float], **more: Any) -> Contender:
    low, high = region
    return Contender(name, label, {"policy": "rho-eos", "rho_low": low, "rho_high": high, **more})


def _as_it_is(name: str, title: str) -> Contender:
    return Contender(name, title or name, {"policy": name})


def plan_survey(target: str, profile: Profile, tasks: Sequence[str], part: Part) -> list[Plan]:
    """The survey of a target, if it is one; only `part` of it is to be run."""
    if target not in SURVEYS:
        if part:
            raise UserError(
                "--policies, --lengths, --thresholds and --caches go with "
                f"{' and '.join(SURVEYS)}, not with {target}"
            )
        return []
    kind = SURVEYS[target]
    every = tuple(
        _row(profile, contender, start, threshold, cache)
        for threshold in THRESHOLDS
        for cache in CACHES
        for contender in contenders()
        if contender.name not in kind.left_out
        for start in _starts(profile, contender, kind)
        if _takes_part(contender, cache)
    )
    rows = _chosen(every, part)
    chosen = tuple(tasks) or profile.tasks["main"]
    return [Survey(target, kind.title, "policy", chosen, rows, every=every)]


def _starts(profile: Profile, contender: Contender, kind: Kind) -> Sequence[int]:
    more = kind.more_fixed and contender.name == FIXED
    return profile.survey_fixed if more else profile.survey_starts


def _takes_part(contender: Contender, cache: str) -> bool:
    """A policy that never takes windows would only repeat its exact rows."""
    return cache == "none" or policies()[contender.given["policy"]].windows is not False


def _row(
    profile: Profile, contender: Contender, start: int, threshold: float, cache: str
) -> SurveyRow:
    known = policies()[contender.given["policy"]].Params.model_fields
    shared: dict[str, Any] = {
        "initial_length": start,
        "max_new_tokens": profile.survey_longest,
        "threshold": threshold,
        "cache": cache,
    }
    if contender.given["policy"] != "blocks":  # whose blocks are its canvas
        shared["block_length"] = profile.survey_block
    own = {name: value for name, value in shared.items() if name in known}
    params = DecodeParams.from_mapping({**own, **contender.given})
    if params.starts_anywhere:  # one run for all
        params = params.replaced(initial_length=min(start, *profile.survey_starts))
    label = f"fixed {start}" if contender.name == FIXED else f"{contender.label} from {start}"
    return SurveyRow(
        f"{label}, τ {threshold:g}, {CACHES[cache]}",
        params,
        contender=contender,
        start=start,
        threshold=threshold,
        cache=cache,
    )


def _chosen(every: Sequence[SurveyRow], part: Part) -> tuple[SurveyRow, ...]:
    """The rows that a part names; a name that the survey does not have is refused."""
    asked = {
        "policies": (part.policies, lambda row: row.contender.name),
        "lengths": (part.lengths, lambda row: f"{row.start}"),
        "thresholds": (
            [_number(text) for text in part.thresholds],
            lambda row: f"{row.threshold:g}",
        ),
        "caches": (part.caches, lambda row: row.cache),
    }
    rows = list(every)
    for option, (names, name_of) in asked.items():
        known = list(dict.fromkeys(name_of(row) for row in every))
        for name in names:
            if name not in known:
                raise UserError(f"{option} is {name!r}, but takes some of {', '.join(known)}")
        rows = [row for row in rows if not names or name_of(row) in names]
    if not rows:
        raise UserError("nothing of the survey is left by what --policies and the others choose")
    return tuple(rows)


def _number(text: str) -> str:
    """`.9` and `0.90` are 0.9; what is no number stays as it is, to be refused by that name."""
    with suppress(ValueError):
        return f"{float(text):g}"
    return text
