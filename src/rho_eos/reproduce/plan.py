"""What each table and figure of the paper is made of: rows, each a set of decoding parameters.

The same parameters are the same run wherever they appear: ρ-EOS Sym of the main table is the region
[0.2, 0.8] of the thresholds, DAEDAL is two stages steered by confidence, and so on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rho_eos.evals.studies.contenders import ASYM, DAEDAL, RHO_ASYM, RHO_SYM, SYM, outside, rho_eos
from rho_eos.evals.studies.study import Plan, Row, params_with
from rho_eos.reproduce.profiles import Profile

ONE_TOKEN, BY_THRESHOLD = "fixed, one token a step", "fixed, τ rule"
REGIONS = (SYM, (0.3, 0.7), (0.4, 0.6), ASYM)


def one_token_label(length: int) -> str:
    return f"fixed {length}, one token a step"


def threshold_label(length: int) -> str:
    return f"fixed {length}, τ rule"


def region_label(region: tuple[float, float]) -> str:
    return f"[{region[0]}, {region[1]}]"


def row(profile: Profile, label: str, own: Mapping[str, Any]) -> Row:
    """A policy's own parameters over the lengths of the profile."""
    lengths = {
        "initial_length": profile.initial_length,
        "max_new_tokens": profile.max_length,
        "block_length": profile.scale.block_length,
    }
    return Row(label, params_with(lengths, own))


def fixed_one_token(profile: Profile, length: int) -> Row:
    """The published baseline, decoded to the end of its canvas as its code does."""
    own = {"policy": "fixed", "initial_length": length, "steps": length, "early_stop": False}
    made = row(profile, one_token_label(length), own)
    return replace(made, samples=profile.one_token_samples, series=ONE_TOKEN)


def fixed_by_threshold(profile: Profile, length: int) -> Row:
    """The fair control: commits and stops as ρ-EOS does; only the length is fixed."""
    made = row(profile, threshold_label(length), {"policy": "fixed", "initial_length": length})
    return replace(made, series=BY_THRESHOLD)


def adaptive_rows(profile: Profile, **more: Any) -> list[Row]:
    """Those that choose the length themselves; policies from outside with their own defaults."""
    published = {DAEDAL: {"policy": "daedal"}, RHO_SYM: rho_eos(SYM), RHO_ASYM: rho_eos(ASYM)}
    rows = published | {each.label: each.own for each in outside()}
    return [row(profile, label, {**own, **more}) for label, own in rows.items()]


def main_rows(profile: Profile) -> list[Row]:
    return [
        *(fixed_one_token(profile, length) for length in profile.one_token_lengths),
        *(fixed_by_threshold(profile, length) for length in profile.fixed_lengths),
        *adaptive_rows(profile),
    ]


def initial_length_rows(profile: Profile) -> list[Row]:
    return [
        replace(row, label=f"{row.label} from {length}")
        for length in (profile.initial_length, *profile.initial_lengths)
        for row in adaptive_rows(profile, initial_length=length)
    ]


def threshold_rows(profile: Profile) -> list[Row]:
    return [row(profile, region_label(region), rho_eos(region)) for region in REGIONS]


def expansion_rows(profile: Profile) -> list[Row]:
    functions = ("constant", "linear", "exponential")
    return [row(profile, name, rho_eos((0.4, 0.6), expansion=name)) for name in functions]


def signal_rows(profile: Profile) -> list[Row]:
    """docs/method.md §3. One stage is steered within Asym's region, by either number; two stages
    within DAEDAL's own thresholds by confidence, within Asym's by density."""
    by_density = rho_eos(ASYM) | {"policy": "daedal", "signal": "density"}
    return [
        row(profile, "single stage, confidence", rho_eos(ASYM, signal="confidence")),
        row(profile, "single stage, density", rho_eos(ASYM)),
        row(profile, "two stages, confidence", {"policy": "daedal"}),
        row(profile, "two stages, density", by_density),
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
        *(row(profile, f"from {n}", rho_eos(ASYM, initial_length=n)) for n in lengths),
    ]
    return [Row(row.label, row.params.replaced(trace=True), profile.traced_samples) for row in rows]


#: Name: title, rows, heading of the column that names them.
TABLES: Mapping[str, tuple[str, Callable[[Profile], list[Row]], str]] = {
    "main": ("Main results", main_rows, "policy"),
    "init-length": ("Initial length", initial_length_rows, "policy"),
    "thresholds": ("Equilibrium region", threshold_rows, "[ρ_low, ρ_high]"),
    "expansion": ("Expansion function, region [0.4, 0.6]", expansion_rows, "E(ρ)"),
    "signals": ("Signal and stages", signal_rows, "stages, signal"),
}
TARGETS = (*TABLES, "figures", "all")


def plan_tables(target: str, profile: Profile, tasks: Sequence[str]) -> list[Plan]:
    """The tables of a target; `tasks` in place of the profile's, if any are given."""

    def tasks_of(name: str) -> Sequence[str]:
        usual = profile.scale.tasks if name == "main" else profile.scale.tasks[:1]
        return tasks or profile.tasks.get(name, usual)

    return [
        Plan(name, title, tuple(tasks_of(name)), tuple(rows(profile)), heading)
        for name, (title, rows, heading) in TABLES.items()
        if target in (name, "all")
    ]


def plan_figures(target: str, profile: Profile, tasks: Sequence[str]) -> list[Plan]:
    """The runs behind the figures: samples for the scatter, and curves of the first task."""
    if target not in ("figures", "all"):
        return []
    chosen = tuple(tasks) or profile.tasks["figures"]
    return [
        Plan("scatter", "E_ratio against N_token", chosen, tuple(scatter_rows(profile))),
        Plan("curves", "ρ over steps", chosen[:1], tuple(curve_rows(profile))),
    ]
