"""Runs as one picture: accuracy against cost, and which of them no other one beats in both."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rho_eos.base.errors import UserError
from rho_eos.evals.runs.compare import Run
from rho_eos.evals.runs.report import COSTS, TaskSummary, summarise
from rho_eos.evals.studies import style

Point = tuple[str, TaskSummary]  # a run's name, and what it showed on a task


def write_pareto(runs: Sequence[Run], path: Path, cost: str, panels: bool = False) -> list[Path]:
    """A panel for each task. Returns the files: one, and with `panels` one more for each task."""
    if path.suffix not in style.FORMATS:
        raise UserError.of("figure", str(path), f"a file that ends in {', '.join(style.FORMATS)}")
    if cost not in COSTS:
        raise UserError.of("cost", cost, f"one of {', '.join(COSTS)}")
    found = [(name, each) for name, lines in runs for each in summarise(lines) if each.costs]
    if not found:
        raise UserError("no run asked a model, so there are no costs to draw")
    with style.applied():
        return style.save(draw(found, cost), path.with_suffix(""), panels, (path.suffix,))


def draw(found: Sequence[Point], cost: str) -> Any:
    tasks = list(dict.fromkeys(summary.task for _, summary in found))
    names = list(dict.fromkeys(name for name, _ in found))
    figure, [row] = style.panels(len(tasks))
    for axes, task in zip(row, tasks, strict=True):
        points = [each for each in found if each[1].task == task]
        for name, summary in points:
            low, high = summary.accuracy.interval or (0.0, 1.0)
            mean, x = 100 * summary.accuracy.mean, _cost(summary, cost)
            look = names.index(name)
            axes.errorbar(
                x.mean, mean, xerr=x.error or 0.0,
                yerr=[[max(0.0, mean - 100 * low)], [max(0.0, 100 * high - mean)]],
                color=f"C{look % 5}", marker="oD^vsPX*"[look // 5 % 8], markersize=8,
                linestyle="", elinewidth=1.2, label=name,
            )  # fmt: skip
        best = [
            (_cost(each, cost).mean, 100 * each.accuracy.mean) for _, each in front(points, cost)
        ]
        axes.plot(*zip(*best, strict=True), color=style.INK, linewidth=1, zorder=0)
        axes.set(title=task, xlabel=f"{cost} of an answer", ylabel="accuracy (%)", xscale="log")
        costs = [_cost(summary, cost).mean for _, summary in points]
        style.plain_numbers(axes.xaxis, wide=max(costs) > 6 * min(costs))
    bars = "bars: 95% interval of accuracy,\n± standard error of the cost;\nline: beaten by none"
    style.legend_beside(row[-1], "run", (style.nothing(), bars))
    return figure


def front(points: Sequence[Point], cost: str) -> list[Point]:
    """Those that no other one beats: none is as accurate and costs less, from cheap to dear."""
    chosen: list[Point] = []
    for point in sorted(points, key=lambda each: (_cost(each[1], cost).mean, -_accuracy(each))):
        if not chosen or _accuracy(point) > _accuracy(chosen[-1]):
            chosen.append(point)
    return chosen


def _accuracy(point: Point) -> float:
    return point[1].accuracy.mean


def _cost(summary: TaskSummary, cost: str) -> Any:
    return summary.costs[COSTS[cost][0]]
