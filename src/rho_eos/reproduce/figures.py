"""The paper's four figures.

Curves are averages over samples. A sample leaves the average when its text is complete, for then it
has no ρ; a curve ends where fewer than half of its samples still run, since a few stragglers say
nothing about the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rho_eos.decoding.expansion import MULTIPLIERS, expansion_factor
from rho_eos.decoding.policies.rho_eos import RhoEosParams
from rho_eos.evals.runs.run_folder import Line
from rho_eos.evals.studies import style
from rho_eos.evals.studies.contenders import ASYM, DAEDAL, RHO_ASYM, RHO_SYM, rho_eos
from rho_eos.evals.studies.study import Plan, Study
from rho_eos.reproduce.plan import BY_THRESHOLD

#: Each series has a marker beside its colour, for those who print in grey.
MARKERS = {BY_THRESHOLD: "o", DAEDAL: "D", RHO_SYM: "^", RHO_ASYM: "v"}
BINS = 50  # of a curve over the share of all steps


def write_figures(study: Study, plan: Plan) -> None:
    """PNG, SVG and PDF of each figure that is made of this plan's answers."""
    with style.applied():
        made = scatter(study, plan) if plan.name == "scatter" else curves(study, plan)
        for name, figure in made.items():
            style.save(figure, study.folder / name, study.panels)


def curves(study: Study, plan: Plan) -> dict[str, Any]:
    """Curves of ρ. Half of the plan's rows are of fixed lengths, the others of ρ-EOS."""
    [task] = plan.tasks
    fixed, adaptive = (
        {
            row.params.initial_length: study.cell(row, task).lines(traces=True)
            for row in plan.rows
            if row.params.policy == policy
        }
        for policy in ("fixed", "rho-eos")
    )
    return {
        "rho-over-steps": rho_over_steps(fixed, task),
        "expansion-functions": expansion_functions(),
        "convergence": convergence(fixed, adaptive, task),
    }


def rho_over_steps(fixed: dict[int, list[Line]], task: str) -> Any:
    figure, [[axes]] = style.panels(1, width=7.2)
    colours = style.length_colours(fixed)
    for length, lines in fixed.items():
        curve = over_progress(lines, "rho")
        axes.fill_between(curve.x, curve.low, curve.high, color=colours[length], alpha=0.15, lw=0)
        axes.plot(curve.x, curve.mean, color=colours[length], label=f"{length}")
    axes.set(xlabel="denoising steps made (%)", xlim=(0, 100), title=f"ρ at fixed lengths, {task}")
    _rho_axis(axes)
    band = style.nothing(), "band: middle half\nof the samples"
    style.legend_beside(axes, "canvas length\n(tokens)", band)
    return figure


def convergence(fixed: dict[int, list[Line]], adaptive: dict[int, list[Line]], task: str) -> Any:
    figure, [[left, middle, right]] = style.panels(3, width=4.6)
    for length, colour in style.length_colours(fixed).items():
        for axes, lines, field in (
            (left, fixed, "rho"),
            (middle, adaptive, "rho"),
            (right, adaptive, "length"),
        ):
            curve = over_steps(lines[length], field)
            axes.plot(curve.x, curve.mean, color=colour, label=f"{length}")
    for axes, title in ((left, f"Fixed length, {task}"), (middle, "ρ-EOS Asym")):
        shade = axes.axhspan(*ASYM, color=style.REGION, alpha=0.10, linewidth=0)
        axes.set_title(title)
        _rho_axis(axes)
    right.set(ylabel="canvas length L (tokens)", title="ρ-EOS Asym")
    right.set_yscale("log", base=2)
    right.set_yticks(list(fixed), [str(length) for length in fixed])
    right.minorticks_off()
    last = max(axes.get_xlim()[1] for axes in (left, middle, right))
    for axes in (left, middle, right):
        axes.set(xlabel="step (forwards)", xlim=(0, last))
    style.legend_beside(right, "L, or L_init (tokens)", (shade, "equilibrium\nregion"))
    return figure


def expansion_functions() -> Any:
    """E(ρ) around Asym's region: how many MASKs are appended, or dropped, in one step."""
    figure, [[axes]] = style.panels(1, width=7.2)
    rho = np.linspace(0, 1, 1001)
    low, high = ASYM
    for number, name in enumerate(MULTIPLIERS):
        params = RhoEosParams.from_mapping(rho_eos(ASYM, expansion=name))
        change = [
            expansion_factor(each, params) * ((each < low) - (each > high)) for each in rho.tolist()
        ]
        axes.plot(rho, change, label=name, linewidth=8 - 3 * number)  # none hidden
    axes.axvspan(low, high, color=style.REGION, alpha=0.10, linewidth=0)
    axes.text((low + high) / 2, 34, "hold", ha="center", color=style.REGION)
    axes.set(
        xlabel="ρ, implicit EOS density",
        ylabel="change of length in a step (tokens)",
        xlim=(0, 1),
        title="Expansion functions E(ρ), region [0.4, 0.8]",
    )
    style.legend_beside(axes, "E(ρ)")
    return figure


def scatter(study: Study, plan: Plan) -> dict[str, Any]:
    """Every sample a point: fixed lengths are columns, adaptive ones follow the answer."""
    figure, grid = style.panels(len(plan.tasks), width=5.4)
    fixed = [row.params.initial_length for row in plan.rows if row.params.policy == "fixed"]
    lengths = sorted({*fixed, plan.rows[0].params.max_new_tokens})
    for axes, task in zip(grid[0], plan.tasks, strict=True):
        for series, marker in MARKERS.items():
            rows = [row for row in plan.rows if (row.series or row.label) == series]
            lines = [line for row in rows for line in study.cell(row, task).lines()]
            axes.scatter(
                [line["n_token"] for line in lines],
                [100 * line["e_ratio"] for line in lines],
                s=36, alpha=0.6, marker=marker, linewidths=0,
                label=series if lines else None,
            )  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, [str(length) for length in lengths])
        axes.set_xlim(right=lengths[-1] * 1.15)
        axes.minorticks_off()
        axes.set(xlabel="N_token, final canvas (tokens)", ylim=(-3, 103), title=task)
    grid[0][0].set_ylabel("E_ratio (%)")
    style.legend_beside(grid[0][-1], "each sample")
    return {"e-ratio": figure}


def _rho_axis(axes: Any) -> None:
    axes.set(ylabel="ρ, implicit EOS density", ylim=(-0.02, 1.02))


@dataclass(frozen=True, slots=True)
class Curve:
    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray  # quartiles over samples
    high: np.ndarray


def over_steps(lines: Sequence[Line], field: str) -> Curve:
    """A field of the trace against the step, while at least half of the samples run."""
    series = [_series(line, field) for line in lines]
    longest = max(len(each) for each in series)
    grid = np.full((len(series), longest), np.nan)
    for row, each in zip(grid, series, strict=True):
        row[: len(each)] = each
    running = np.sum(~np.isnan(grid), axis=0)
    kept = grid[:, running >= max(1, len(series) / 2)]
    return _curve(np.arange(kept.shape[1]), kept)


def over_progress(lines: Sequence[Line], field: str) -> Curve:
    """A field of the trace against the share of its steps that a sample has made.

    All samples count from the first step to the last.
    """
    x = np.linspace(0, 1, BINS)
    series = [_series(line, field) for line in lines]
    grid = [np.interp(x, np.linspace(0, 1, len(each)), each) for each in series]
    return _curve(100 * x, np.array(grid))


def _series(line: Line, field: str) -> np.ndarray:
    values = [record[field] for record in line["trace"]]
    return np.array([value for value in values if value is not None], dtype=float)


def _curve(x: np.ndarray, grid: np.ndarray) -> Curve:
    low, high = np.nanquantile(grid, [0.25, 0.75], axis=0)
    return Curve(x, np.nanmean(grid, axis=0), low, high)
