"""What each table and figure is made of: rows, each a set of decoding parameters.

The same parameters are the same run wherever they appear: ρ-EOS Sym of the main table is the region
[0.2, 0.8] of the thresholds, DAEDAL is two stages steered by confidence, and so on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.policy import Policy
from rho_eos.decoding.registry import foreign_policies
from rho_eos.reproduce.profiles import Profile

ASYM, SYM = (0.4, 0.8), (0.2, 0.8)
DAEDAL_REGION = (0.5, 0.9)
REGIONS = (SYM, (0.3, 0.7), (0.4, 0.6), ASYM)
DAEDAL, RHO_SYM, RHO_ASYM = "DAEDAL", "ρ-EOS Sym", "ρ-EOS Asym"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table, or a curve of a figure."""

    label: str
    params: DecodeParams
    samples: int | None = None  # at most so many; None: as many as were asked for


@dataclass(frozen=True, slots=True)
class Plan:
    """One table, or the runs behind the figures."""

    name: str
    title: str
    heading: str  # of the column that names the rows
    tasks: tuple[str, ...]
    rows: tuple[Row, ...]


def one_token_label(length: int) -> str:
    return f"fixed {length}, one token a step"


def threshold_label(length: int) -> str:
    return f"fixed {length}, τ rule"


def region_label(region: tuple[float, float]) -> str:
    return f"[{region[0]}, {region[1]}]"


def fixed_one_token(profile: Profile, length: int) -> Row:
    """The published baseline, decoded to the end of its canvas as its code does."""
    params = DecodeParams(
        policy="fixed",
        initial_length=length,
        steps=length,
        max_new_tokens=profile.max_length,
        block_length=profile.block_length,
        early_stop=False,
    )
    return Row(one_token_label(length), params, profile.one_token_samples)


def fixed_by_threshold(profile: Profile, length: int) -> Row:
    """The fair control: commits and stops as ρ-EOS does; only the length is fixed."""
    params = DecodeParams(
        policy="fixed",
        initial_length=length,
        max_new_tokens=profile.max_length,
        block_length=profile.block_length,
    )
    return Row(threshold_label(length), params)


def rho_eos(profile: Profile, label: str, region: tuple[float, float], **more: Any) -> Row:
    return _adaptive(profile, label, "rho-eos", region, **more)


def daedal(
    profile: Profile, label: str = DAEDAL, region: tuple[float, float] = DAEDAL_REGION, **more: Any
) -> Row:
    return _adaptive(profile, label, "daedal", region, **more)


def _adaptive(
    profile: Profile, label: str, policy: str, region: tuple[float, float], **more: Any
) -> Row:
    """Every value is written out, so that equal runs have equal parameters."""
    given = {
        "policy": policy,
        "rho_low": region[0],
        "rho_high": region[1],
        "signal": "confidence" if policy == "daedal" else "density",
        "initial_length": profile.initial_length,
        "max_new_tokens": profile.max_length,
        "block_length": profile.block_length,
    }
    return Row(label, DecodeParams.from_mapping(given | more))


def adaptive_rows(profile: Profile, **more: Any) -> list[Row]:
    """Those that choose the length themselves."""
    return [
        daedal(profile, **more),
        rho_eos(profile, RHO_SYM, SYM, **more),
        rho_eos(profile, RHO_ASYM, ASYM, **more),
        *(foreign(profile, policy, **more) for policy in foreign_policies()),
    ]


def foreign(profile: Profile, policy: type[Policy], **more: Any) -> Row:
    """A policy from outside, with its own defaults on the profile's lengths."""
    lengths = {
        "initial_length": profile.initial_length,
        "max_new_tokens": profile.max_length,
        "block_length": profile.block_length,
    }
    known = policy.Params.model_fields
    given = {name: value for name, value in (lengths | more).items() if name in known}
    params = DecodeParams.from_mapping({"policy": policy.name, **given})
    return Row(policy.title or policy.name, params)


def main_rows(profile: Profile) -> list[Row]:
    return [
        *(fixed_one_token(profile, length) for length in profile.one_token_lengths),
        *(fixed_by_threshold(profile, length) for length in profile.fixed_lengths),
        *adaptive_rows(profile),
    ]


def initial_length_rows(profile: Profile) -> list[Row]:
    return [
        Row(f"{row.label} from {length}", row.params)
        for length in (profile.initial_length, *profile.initial_lengths)
        for row in adaptive_rows(profile, initial_length=length)
    ]


def threshold_rows(profile: Profile) -> list[Row]:
    return [rho_eos(profile, region_label(region), region) for region in REGIONS]


def expansion_rows(profile: Profile) -> list[Row]:
    functions = ("constant", "linear", "exponential")
    return [rho_eos(profile, name, (0.4, 0.6), expansion=name) for name in functions]


def signal_rows(profile: Profile) -> list[Row]:
    """docs/method.md §3. One stage is steered within Asym's region, by either number; two stages
    within DAEDAL's own thresholds by confidence, within Asym's by density."""
    return [
        rho_eos(profile, "single stage, confidence", ASYM, signal="confidence"),
        rho_eos(profile, "single stage, density", ASYM),
        daedal(profile, "two stages, confidence"),
        daedal(profile, "two stages, density", ASYM, signal="density"),
    ]


def scatter_rows(profile: Profile) -> list[Row]:
    """Per sample E_ratio against N_token: the rows of the main table that share the τ rule."""
    lengths = profile.figure_lengths
    return [*(fixed_by_threshold(profile, length) for length in lengths), *adaptive_rows(profile)]


def curve_rows(profile: Profile) -> list[Row]:
    """Runs with a trace: fixed lengths, and ρ-EOS from each of the same lengths."""
    lengths = profile.figure_lengths
    rows = [
        *(fixed_by_threshold(profile, length) for length in lengths),
        *(rho_eos(profile, f"from {n}", ASYM, initial_length=n) for n in lengths),
    ]
    return [Row(row.label, row.params.replaced(trace=True), profile.traced_samples) for row in rows]


#: Name, title, heading, rows.
TABLES: tuple[tuple[str, str, str, Callable[[Profile], list[Row]]], ...] = (
    ("main", "Main results", "policy", main_rows),
    ("init-length", "Initial length", "policy", initial_length_rows),
    ("thresholds", "Equilibrium region", "[ρ_low, ρ_high]", threshold_rows),
    ("expansion", "Expansion function, region [0.4, 0.6]", "E(ρ)", expansion_rows),
    ("signals", "Signal and stages", "stages, signal", signal_rows),
)
TABLE_NAMES = tuple(name for name, *_ in TABLES)
TARGETS = (*TABLE_NAMES, "figures", "all")  # the surveys, which take hours, are no part of all


def plan_tables(target: str, profile: Profile, tasks: Sequence[str]) -> list[Plan]:
    """The tables of a target; `tasks` in place of the profile's, if any are given."""
    return [
        Plan(name, title, heading, tuple(tasks) or profile.tasks[name], tuple(rows(profile)))
        for name, title, heading, rows in TABLES
        if target in (name, "all")
    ]


def plan_figures(target: str, profile: Profile, tasks: Sequence[str]) -> list[Plan]:
    """The runs behind the figures: samples for the scatter, and curves of the first task."""
    if target not in ("figures", "all"):
        return []
    chosen = tuple(tasks) or profile.tasks["figures"]
    return [
        Plan("scatter", "E_ratio against N_token", "policy", chosen, tuple(scatter_rows(profile))),
        Plan("curves", "ρ over steps", "policy", chosen[:1], tuple(curve_rows(profile))),
    ]
