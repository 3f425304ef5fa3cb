"""What each table and figure of the paper is made of: rows, each a set of decoding parameters.

The same parameters are the same run wherever they appear: ρ-EOS Sym of the main table is the region
[0.2, 0.8] of the thresholds, DAEDAL is two stages steered by confidence, and so on.

A profile says how long things are: those of the paper, or those of the embedded model. `tiny`
answers in about a quarter of the tokens that LLaDA needs for GSM8K to HumanEval, so each of its
lengths is a quarter of the paper's: canvases of 64…2048 become 16…512, blocks of 32 become 8 (in
blocks of 32 it writes twenty tokens a forward, and is done before its length is settled). Nothing
else is scaled: τ, the equilibrium regions, the horizon N = 64, E's base of 8, and DAEDAL's window
of 32 and tail of 16 are those of the papers. On two CPU cores there is one more concession: one
token a step is run at the four shortest lengths only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rho_eos.base.errors import UserError
from rho_eos.decoding.params import DecodeParams, merged
from rho_eos.evals.studies.contenders import (
    ASYM,
    DAEDAL,
    RHO_ASYM,
    RHO_SYM,
    SYM,
    contenders,
    outside,
    rho_eos,
)
from rho_eos.evals.studies.study import EMBEDDED_TASKS, PUBLISHED_TASKS, Plan, StudyRow
from rho_eos.models.known import EMBEDDED

BY_THRESHOLD = "fixed, τ rule"  # a series of rows
TRACED_SAMPLES = 8  # behind each curve of ρ over steps
TABLES = {
    "main": "Main results",
    "init-length": "Initial length",
    "thresholds": "Equilibrium region",
    "expansion": "Expansion function, region [0.4, 0.6]",
    "signals": "Signal and stages",
}
#: The runs behind the figures: a point for each sample, and curves over the steps.
FIGURES = {"scatter": "E_ratio against N_token", "curves": "ρ over steps"}
TARGETS = (*TABLES, "figures", "all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The lengths, tasks and samples of a reproduction."""

    name: str
    tasks: tuple[str, ...]  # of the main table
    figure_tasks: tuple[str, ...]  # of the scatter; the curves are of the first
    block_length: int
    lengths: tuple[int, ...]  # the first is L_init, the last L_max, all are tried as fixed ones
    one_token_lengths: tuple[int, ...]  # those also run one token a step

    def row(self, label: str, own: Mapping[str, Any], **more: Any) -> StudyRow:
        """A policy's own parameters over the profile's lengths; `more` is what the row has."""
        shared = {
            "initial_length": self.lengths[0],
            "max_new_tokens": self.lengths[-1],
            "block_length": self.block_length,
        }
        return StudyRow(label, DecodeParams.from_mapping(merged(shared, own)), **more)


PAPER = Profile(
    name="paper",
    tasks=PUBLISHED_TASKS,
    figure_tasks=("gsm8k",),
    block_length=32,
    lengths=(64, 128, 256, 512, 1024, 2048),
    one_token_lengths=(64, 128, 256, 512, 1024, 2048),
)
TINY = Profile(
    name="tiny",
    tasks=EMBEDDED_TASKS,
    figure_tasks=("tiny-gsm", "tiny-mbpp"),
    block_length=8,
    lengths=(16, 32, 64, 128, 256, 512),
    one_token_lengths=(16, 32, 64, 128),
)
PROFILES = {profile.name: profile for profile in (PAPER, TINY)}


def choose_profile(model: str, name: str | None) -> Profile:
    """The one asked for; else `tiny` for the embedded models and the paper's for all others."""
    name = name or ("tiny" if model in EMBEDDED else "paper")
    if name not in PROFILES:
        raise UserError(f"profile is {name!r}, but takes one of {', '.join(PROFILES)}")
    return PROFILES[name]


def make_plans(target: str, profile: Profile, tasks: Sequence[str]) -> list[Plan]:
    """The plans of a target; `tasks` in place of the profile's, if any are given."""
    if target not in TARGETS:
        raise UserError(f"reproduce got {target!r}, but takes one of {', '.join(TARGETS)}")
    groups: dict[str, Mapping[str, str]] = {"all": TABLES | FIGURES, "figures": FIGURES}
    usual = {
        "main": profile.tasks,
        "signals": profile.tasks[::2],  # one that asks for numbers and one for programs
        "scatter": profile.figure_tasks,
    }
    plans = []
    for name in groups.get(target, [target]):
        chosen = tasks or usual.get(name, profile.tasks[:1])
        chosen = chosen[:1] if name == "curves" else chosen
        plans.append(Plan(name, (TABLES | FIGURES)[name], chosen, rows_of(name, profile)))
    return plans


def rows_of(name: str, profile: Profile) -> list[StudyRow]:
    row, starts = profile.row, profile.lengths[:-1]
    if name == "main":
        # The published baseline, decoded to the end of its canvas as its code does; and the fair
        # control, which commits and stops as ρ-EOS does, so that only the length is fixed.
        published = {"commit": "quota", "early_stop": False}
        return [
            *fixed_rows(profile, profile.one_token_lengths, "one token a step", **published),
            *fixed_rows(profile, profile.lengths),
            *adaptive_rows(profile),
        ]
    if name == "init-length":
        return [
            each for n in starts for each in adaptive_rows(profile, f" from {n}", initial_length=n)
        ]
    if name == "thresholds":
        regions = (SYM, (0.3, 0.7), (0.4, 0.6), ASYM)
        return [row(f"[{low}, {high}]", rho_eos((low, high))) for low, high in regions]
    if name == "expansion":
        names = ("constant", "linear", "exponential")
        return [row(name, rho_eos((0.4, 0.6), expansion=name)) for name in names]
    if name == "signals":
        # docs/method.md §3. One stage is steered within Asym's region, by either number; two
        # stages within DAEDAL's own thresholds by confidence, within Asym's by density.
        return [
            row("single stage, confidence", rho_eos(ASYM, signal="confidence")),
            row("single stage, density", rho_eos(ASYM)),
            row("two stages, confidence", {"policy": "daedal"}),
            row("two stages, density", rho_eos(ASYM, policy="daedal", signal="density")),
        ]
    if name == "scatter":  # rows of the main table that share the τ rule
        return [*fixed_rows(profile, starts), *adaptive_rows(profile)]
    # The curves are of fixed lengths, and of ρ-EOS from each of the same lengths.
    asym = [row(f"from {n}", rho_eos(ASYM, initial_length=n)) for n in starts]
    return [
        StudyRow(each.label, each.params.replaced(trace=True), TRACED_SAMPLES)
        for each in (*fixed_rows(profile, starts), *asym)
    ]


def fixed_rows(
    profile: Profile, lengths: Sequence[int], commits: str = "τ rule", **more: Any
) -> list[StudyRow]:
    return [
        profile.row(
            f"fixed {n}, {commits}",
            {"policy": "fixed", "initial_length": n, **more},
            series=f"fixed, {commits}",
        )
        for n in lengths
    ]


def adaptive_rows(profile: Profile, suffix: str = "", **more: Any) -> list[StudyRow]:
    """Those that choose the length themselves; policies from outside with their own defaults."""
    labels = (DAEDAL, RHO_SYM, RHO_ASYM, *outside())
    return [
        profile.row(each.label + suffix, {**each.own, **more})
        for each in contenders()
        if each.label in labels
    ]
