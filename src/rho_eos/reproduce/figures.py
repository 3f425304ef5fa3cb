"""The paper's four figures, and the main table as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from rho_eos.decoding.expansion import MULTIPLIERS, ExpansionParams, expansion_factor
from rho_eos.decoding.policies.rho_eos import RhoEosParams
from rho_eos.evals.runs.report import summarise
from rho_eos.evals.runs.run_folder import Line
from rho_eos.reproduce import style
from rho_eos.reproduce.cells import Study
from rho_eos.reproduce.curves import Curve, over_progress, over_steps
from rho_eos.reproduce.plan import ASYM, Plan

EXPANSION_COLOURS = dict(zip(MULTIPLIERS, ("#56B4E9", "#0072B2", "#D55E00"), strict=True))


def write_figures(
    folder: Path, study: Study, scatter: Plan, curves: Plan, main: Plan | None
) -> None:
    """PNG and SVG of each. The trade-off is drawn where the main table was made as well."""
    traced = [study.cell(row, curves.tasks[0]).lines(traces=True) for row in curves.rows]
    lengths = study.profile.figure_lengths
    fixed = dict(zip(lengths, traced[: len(lengths)], strict=True))
    adaptive = dict(zip(lengths, traced[len(lengths) :], strict=True))
    with matplotlib.rc_context(style.STYLE):
        drawn = {
            "rho-over-steps": rho_over_steps(fixed, curves.tasks[0]),
            "expansion-functions": expansion_functions(),
            "e-ratio": e_ratio(study, scatter),
            "convergence": convergence(fixed, adaptive, curves.tasks[0]),
        }
        if main is not None:
            drawn["trade-off"] = trade_off(study, main)
        for name, figure in drawn.items():
            style.save(figure, folder / name)


def rho_over_steps(fixed: dict[int, list[Line]], task: str) -> Any:
    figure, [[axes]] = style.panels(1, width=7.2)
    colours = style.length_colours(tuple(fixed))
    for length, lines in fixed.items():
        curve = over_progress(lines, "rho")
        axes.fill_between(curve.x, curve.low, curve.high, color=colours[length], alpha=0.15, lw=0)
        axes.plot(curve.x, curve.mean, color=colours[length], label=f"{length}")
    axes.set(xlabel="denoising steps made (%)", xlim=(0, 100), title=f"ρ at fixed lengths, {task}")
    _rho_axis(axes)
    style.legend_beside(axes, "canvas length\n(tokens)")
    return figure


def convergence(fixed: dict[int, list[Line]], adaptive: dict[int, list[Line]], task: str) -> Any:
    figure, [[left, middle, right]] = style.panels(3, width=4.6)
    colours = style.length_colours(tuple(fixed))
    for length, colour in colours.items():
        _line(left, over_steps(fixed[length], "rho"), colour, f"{length}")
        _line(middle, over_steps(adaptive[length], "rho"), colour, f"{length}")
        _line(right, over_steps(adaptive[length], "length"), colour, f"{length}")
    for axes, title in ((left, f"Fixed length, {task}"), (middle, "ρ-EOS Asym")):
        shade = style.shade_region(axes, ASYM)
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
    for number, (name, colour) in enumerate(EXPANSION_COLOURS.items()):
        region = {"rho_low": low, "rho_high": high}
        params = RhoEosParams.from_mapping({"expansion": name, **region})
        change = [_length_change(float(value), params) for value in rho]
        axes.plot(rho, change, color=colour, label=name, linewidth=8 - 3 * number)  # none hidden
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


def _length_change(rho: float, params: ExpansionParams) -> int:
    low, high = params.region
    if low <= rho <= high:
        return 0
    return expansion_factor(rho, params) * (1 if rho < low else -1)


def e_ratio(study: Study, plan: Plan) -> Any:
    """Every sample a point: fixed lengths are columns, adaptive ones follow the answer."""
    figure, grid = style.panels(len(plan.tasks), width=5.4)
    lengths = (*study.profile.figure_lengths, study.profile.max_length)
    for axes, task in zip(grid[0], plan.tasks, strict=True):
        for series, (colour, marker) in style.POLICIES.items():
            rows = [row for row in plan.rows if _series(row.label) == series]
            lines = [line for row in rows for line in study.cell(row, task).lines()]
            axes.scatter(
                [line["n_token"] for line in lines],
                [100 * line["e_ratio"] for line in lines],
                s=36, alpha=0.6, color=colour, marker=marker, linewidths=0,
                label=series if lines else None,
            )  # fmt: skip
        style.length_axis(axes, tuple(sorted(set(lengths))))
        axes.set(xlabel="N_token, final canvas (tokens)", ylim=(-3, 103), title=task)
    grid[0][0].set_ylabel("E_ratio (%)")
    style.legend_beside(grid[0][-1], "each sample")
    return figure


def trade_off(study: Study, main: Plan) -> Any:
    """Accuracy against positions evaluated: up and to the left is better."""
    columns = min(2, len(main.tasks))
    rows = -(-len(main.tasks) // columns)
    figure, grid = style.panels(columns, rows, width=5.6, height=4.0)
    for axes, task in zip(grid.flat, main.tasks, strict=False):
        for series, (colour, marker) in style.POLICIES.items():
            points = [_point(study.cell(row, task).lines()) for row in main.rows
                      if _series(row.label) == series]  # fmt: skip
            if not points:
                continue
            cost, accuracy, error = np.array(points).T
            axes.errorbar(
                cost, accuracy, yerr=error, color=colour, marker=marker, markersize=8,
                elinewidth=1, label=series, linewidth=1.4 if len(points) > 1 else 0,
            )  # fmt: skip
        axes.set(title=task, xscale="log", ylim=(-4, 104))
    for axes in grid.flat[len(main.tasks) :]:
        axes.set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel("accuracy (%) ± standard error")
    for axes in grid[-1]:
        axes.set_xlabel("positions evaluated per sample")
    style.legend_beside(grid[0][-1], "fixed lengths are joined,\nshort to long")
    return figure


def _point(lines: Sequence[Line]) -> tuple[float, float, float]:
    [summary] = summarise(lines)
    accuracy = summary.accuracy
    cost = summary.costs["positions_evaluated"].mean
    return cost, 100 * accuracy.mean, 100 * (accuracy.error or 0.0)


def _series(label: str) -> str:
    """The policy a row belongs to: a fixed length's label without the length."""
    return "fixed, " + label.partition(", ")[2] if label.startswith("fixed ") else label


def _line(axes: Any, curve: Curve, colour: Any, label: str) -> None:
    axes.plot(curve.x, curve.mean, color=colour, label=label)


def _rho_axis(axes: Any) -> None:
    axes.set(ylabel="ρ, implicit EOS density", ylim=(-0.02, 1.02))
