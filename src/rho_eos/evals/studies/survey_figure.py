"""A survey as one picture: a line for each policy, and on it a point for each initial length.

Where the points of a line lie together, the initial length does not matter to that policy.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rho_eos.evals.runs.stats import Estimate
from rho_eos.evals.studies import style
from rho_eos.evals.studies.findings import Finding, best_fixed, by_section, verdict

#: Of each column of panels: the number, its axis, and whether it is a share, shown in per cent.
MEASURES = (
    ("accuracy", "accuracy (%; dotted: best fixed)", True),
    ("positions", "positions of an answer", False),
    ("e_ratio", "E_ratio (%)", True),
)
LINE = 0.36  # inches that a policy takes
SPREAD = 0.52  # of a line that its points take, so that equal ones do not cover each other


def write_figure(found: Sequence[Finding], stem: Path) -> None:
    with style.applied():
        style.save(draw(found), stem)


def draw(found: Sequence[Finding]) -> Any:
    """Sections in which policies are compared; if there are none, all."""
    sections = by_section(found)
    several = {name: of for name, of in sections.items() if len({one.policy for one in of}) > 1}
    sections = several or sections
    drawn = [each for members in sections.values() for each in members]
    starts = tuple(sorted({each.start for each in drawn if each.start is not None}))
    height = 1.1 + LINE * len({each.policy for each in drawn})
    figure, grid = style.panels(len(MEASURES), len(sections), width=4.3, height=height)
    for row, (section, members) in zip(grid, sections.items(), strict=True):
        labels = list(dict.fromkeys(each.policy for each in members))
        for axes, (name, title, share) in zip(row, MEASURES, strict=True):
            _panel(axes, members, labels, starts, name, 100 if share else 1)
            axes.set_xlabel(title)
            if share:
                axes.set_xlim(-3, 103)
            else:  # the same for all sections, so that what a cache saves is seen, too
                numbers = [getattr(each, name).mean for each in drawn]
                style.number_axis(axes.xaxis, min(numbers), max(numbers))
        _name_the_lines(row[0], members, labels)
        row[0].set_title(section)
    for start, (colour, marker) in style.length_marks(starts).items():  # of all sections
        grid[0][-1].plot([], [], color=colour, marker=marker, linestyle="", label=f"{start}")
    if any(each.start is None for each in drawn):
        grid[0][-1].plot([], [], color=style.INK, marker="o", linestyle="", label="any")
    style.legend_beside(grid[0][-1], "L_init")
    return figure


def _panel(
    axes: Any,
    members: Sequence[Finding],
    labels: Sequence[str],
    starts: tuple[int, ...],
    measure: str,
    scale: int,
) -> None:
    marks = style.length_marks(starts)
    for each in members:
        number: Estimate = getattr(each, measure)
        step, (colour, marker) = 0.0, (style.INK, "o")  # where the start makes no difference
        if each.start is not None:
            step = starts.index(each.start) / max(1, len(starts) - 1) - 0.5
            colour, marker = marks[each.start]
        axes.errorbar(
            scale * number.mean, labels.index(each.policy) + SPREAD * step,
            xerr=scale * (number.error or 0.0), color=colour, marker=marker, markersize=7,
            linestyle="", elinewidth=1.4,
        )  # fmt: skip
    axes.set_ylim(len(labels) - 0.4, -0.6)
    for line in range(1, len(labels)):
        axes.axhline(line - 0.5, color=style.GRID, linewidth=0.8, zorder=0)
    axes.grid(False, axis="y")
    axes.set_yticks(range(len(labels)), ["" for _ in labels])
    axes.tick_params(axis="y", length=0)


def _name_the_lines(axes: Any, members: Sequence[Finding], labels: Sequence[str]) -> None:
    """Beside the first panel; the policy that the section speaks for in bold."""
    best, choice = best_fixed(members), verdict(members).choice
    for text, label in zip(axes.set_yticklabels(labels), labels, strict=True):
        if best is not None and choice in (label, f"{label} {best.start}"):
            text.set_fontweight("bold")
    if best is not None:
        level = 100 * best.accuracy.mean
        axes.axvline(level, color=style.INK, linewidth=1, linestyle=":", zorder=0)
