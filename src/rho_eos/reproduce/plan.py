"""What each table and figure of the paper is made of: rows, each a set of decoding parameters.

The same parameters are the same run wherever they appear: ρ-EOS Sym of the main table is the region
[0.2, 0.8] of the thresholds, DAEDAL is two stages steered by confidence, and so on.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rho_eos.decoding.params import DecodeParams, merged
from rho_eos.evals.studies.contenders import ASYM, DAEDAL, RHO_ASYM, RHO_SYM, SYM, outside, rho_eos
from rho_eos.evals.studies.study import Plan, Row
from rho_eos.reproduce.profiles import Profile

BY_THRESHOLD = "fixed, τ rule"  # a series of rows
TITLES = {
    "main": "Main results",
    "init-length": "Initial length",
    "thresholds": "Equilibrium region",
    "expansion": "Expansion function, region [0.4, 0.6]",
    "signals": "Signal and stages",
}
TARGETS = (*TITLES, "figures", "all")


def row(profile: Profile, label: str, own: Mapping[str, Any], **more: Any) -> Row:
    """A policy's own parameters over the lengths of the profile; `more` is the row's."""
    shared = {
        "initial_length": profile.lengths[0],
        "max_new_tokens": profile.lengths[-1],
        "block_length": profile.block_length,
    }
    return Row(label, DecodeParams.from_mapping(merged(shared, own)), **more)


def one_token_rows(profile: Profile) -> list[Row]:
    """The published baseline, decoded to the end of its canvas as its code does."""
    return [
        row(
            profile,
            f"fixed {n}, one token a step",
            {"policy": "fixed", "initial_length": n, "commit": "quota", "early_stop": False},
            samples=profile.one_token_samples,
        )
        for n in profile.one_token_lengths
    ]


def by_threshold_rows(profile: Profile, lengths: Sequence[int]) -> list[Row]:
    """The fair control: commits and stops as ρ-EOS does; only the length is fixed."""
    return [
        row(
            profile,
            f"fixed {n}, τ rule",
            {"policy": "fixed", "initial_length": n},
            series=BY_THRESHOLD,
        )
        for n in lengths
    ]


def adaptive_rows(profile: Profile, suffix: str = "", **more: Any) -> list[Row]:
    """Those that choose the length themselves; policies from outside with their own defaults."""
    published = {DAEDAL: {"policy": "daedal"}, RHO_SYM: rho_eos(SYM), RHO_ASYM: rho_eos(ASYM)}
    rows = published | {each.label: each.own for each in outside()}
    return [row(profile, label + suffix, {**own, **more}) for label, own in rows.items()]


def rows_of(table: str, profile: Profile) -> list[Row]:
    if table == "main":
        fixed = by_threshold_rows(profile, profile.lengths)
        return [*one_token_rows(profile), *fixed, *adaptive_rows(profile)]
    if table == "init-length":
        starts = profile.lengths[:-1]
        return [
            each for n in starts for each in adaptive_rows(profile, f" from {n}", initial_length=n)
        ]
    if table == "thresholds":
        regions = (SYM, (0.3, 0.7), (0.4, 0.6), ASYM)
        return [row(profile, f"[{low}, {high}]", rho_eos((low, high))) for low, high in regions]
    if table == "expansion":
        names = ("constant", "linear", "exponential")
        return [row(profile, name, rho_eos((0.4, 0.6), expansion=name)) for name in names]
    # Signals, docs/method.md §3. One stage is steered within Asym's region, by either number; two
    # stages within DAEDAL's own thresholds by confidence, within Asym's by density.
    return [
        row(profile, "single stage, confidence", rho_eos(ASYM, signal="confidence")),
        row(profile, "single stage, density", rho_eos(ASYM)),
        row(profile, "two stages, confidence", {"policy": "daedal"}),
        row(profile, "two stages, density", rho_eos(ASYM, policy="daedal", signal="density")),
    ]


def plan_tables(target: str, profile: Profile, tasks: Sequence[str]) -> list[Plan]:
    """The tables of a target; `tasks` in place of the profile's, if any are given."""
    usual = {"main": profile.tasks, "signals": profile.signal_tasks}
    return [
        Plan(
            name, title, tuple(tasks) or usual.get(name, profile.tasks[:1]), rows_of(name, profile)
        )
        for name, title in TITLES.items()
        if target in (name, "all")
    ]


def plan_figures(target: str, profile: Profile, tasks: Sequence[str]) -> list[Plan]:
    """The runs behind the figures. For the scatter of samples: the rows of the main table that
    share the τ rule. For the curves, which have a trace and are of the first task: fixed lengths,
    and ρ-EOS from each of the same lengths."""
    if target not in ("figures", "all"):
        return []
    chosen, lengths = tuple(tasks) or profile.figure_tasks, profile.lengths[:-1]
    fixed = by_threshold_rows(profile, lengths)
    asym = [row(profile, f"from {n}", rho_eos(ASYM, initial_length=n)) for n in lengths]
    traced = [
        Row(each.label, each.params.replaced(trace=True), profile.traced_samples)
        for each in (*fixed, *asym)
    ]
    return [
        Plan("scatter", "E_ratio against N_token", chosen, [*fixed, *adaptive_rows(profile)]),
        Plan("curves", "ρ over steps", chosen[:1], traced),
    ]
