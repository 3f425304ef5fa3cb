"""The paper's four figures."""

from typing import Any

import numpy as np

from rho_eos.decoding.expansion import MULTIPLIERS, ExpansionParams, expansion_factor
from rho_eos.decoding.policies.rho_eos import RhoEosParams
from rho_eos.evals.runs.run_folder import Line
from rho_eos.evals.studies import style
from rho_eos.evals.studies.contenders import ASYM, DAEDAL, RHO_ASYM, RHO_SYM, rho_eos
from rho_eos.evals.studies.study import Plan, Study
from rho_eos.reproduce.curves import over_progress, over_steps
from rho_eos.reproduce.plan import BY_THRESHOLD

# Okabe and Ito's palette; the marker says the same again for those who print in grey.
POLICIES = {
    BY_THRESHOLD: ("#0072B2", "o"),
    DAEDAL: ("#E69F00", "D"),
    RHO_SYM: ("#009E73", "^"),
    RHO_ASYM: ("#D55E00", "v"),
}
EXPANSION_COLOURS = dict(zip(MULTIPLIERS, ("#56B4E9", "#0072B2", "#D55E00"), strict=True))


def write_figures(study: Study, scatter: Plan, curves: Plan) -> None:
    """PNG and SVG of each. Half of the curves are of fixed lengths, the others of ρ-EOS."""
    [task] = curves.tasks
    fixed, adaptive = (
        {
            row.params.initial_length: study.cell(row, task).lines(traces=True)
            for row in curves.rows
            if row.params.policy == policy
        }
        for policy in ("fixed", "rho-eos")
    )
    with style.applied():
        for name, figure in {
            "rho-over-steps": rho_over_steps(fixed, task),
            "expansion-functions": expansion_functions(),
            "e-ratio": e_ratio(study, scatter),
            "convergence": convergence(fixed, adaptive, task),
        }.items():
            style.save(figure, study.folder / name)


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
    for number, (name, colour) in enumerate(EXPANSION_COLOURS.items()):
        params = RhoEosParams.from_mapping(rho_eos(ASYM, expansion=name))
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
    fixed = [row.params.initial_length for row in plan.rows if row.params.policy == "fixed"]
    lengths = sorted({*fixed, plan.rows[0].params.max_new_tokens})
    for axes, task in zip(grid[0], plan.tasks, strict=True):
        for series, (colour, marker) in POLICIES.items():
            rows = [row for row in plan.rows if (row.series or row.label) == series]
            lines = [line for row in rows for line in study.cell(row, task).lines()]
            axes.scatter(
                [line["n_token"] for line in lines],
                [100 * line["e_ratio"] for line in lines],
                s=36, alpha=0.6, color=colour, marker=marker, linewidths=0,
                label=series if lines else None,
            )  # fmt: skip
        style.length_axis(axes, lengths)
        axes.set(xlabel="N_token, final canvas (tokens)", ylim=(-3, 103), title=task)
    grid[0][0].set_ylabel("E_ratio (%)")
    style.legend_beside(grid[0][-1], "each sample")
    return figure


def _rho_axis(axes: Any) -> None:
    axes.set(ylabel="ρ, implicit EOS density", ylim=(-0.02, 1.02))
