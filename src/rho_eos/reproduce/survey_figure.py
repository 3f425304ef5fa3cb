"""A survey as one picture: a line for each policy, and on it a point for each initial length.

Where the points of a line lie together, the initial length does not matter to that policy.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

from rho_eos.evals.runs.stats import Estimate
from rho_eos.reproduce import style
from rho_eos.reproduce.cells import Study
from rho_eos.reproduce.survey import Survey, contenders
from rho_eos.reproduce.survey_table import Finding, best_fixed, findings, verdict

#: Of each column of panels: its axis, the number in per cent or as it is, and whether the axis is
#: logarithmic.
MEASURES: tuple[tuple[str, Callable[[Finding], Estimate], bool], ...] = (
    ("accuracy (%; dotted: best fixed)", lambda found: found.summary.accuracy, False),
    ("positions of an answer", lambda found: found.summary.costs["positions_evaluated"], True),
    ("E_ratio (%)", lambda found: _e_ratio(found), False),
)
LINE = 0.36  # inches that a policy takes
SPREAD = 0.52  # of a line that its points take, so that equal ones do not cover each other


def _e_ratio(found: Finding) -> Estimate:
    assert found.summary.e_ratio is not None
    return found.summary.e_ratio


def write_survey_figure(study: Study, survey: Survey) -> None:
    """PNG and SVG, named as the survey's table is."""
    write_figure(findings(study, survey), study.folder / survey.name)


def write_figure(found: Sequence[Finding], stem: Path) -> None:
    with matplotlib.rc_context(style.STYLE):
        style.save(draw(found), stem)


def draw(found: Sequence[Finding]) -> Any:
    """Sections in which policies are compared; if there are none, all."""
    policies: dict[str, set[str]] = {}
    for each in found:
        policies.setdefault(each.row.section, set()).add(each.row.contender.name)
    sections = [name for name, members in policies.items() if len(members) > 1] or list(policies)
    found = [each for each in found if each.row.section in sections]
    starts = tuple(sorted({each.row.start for each in found}))
    drawn = {each.row.contender.label for each in found}
    labels = [each.label for each in contenders() if each.label in drawn]
    height = 1.1 + LINE * len(labels)
    figure, grid = style.panels(len(MEASURES), len(sections), width=4.3, height=height)
    for row, section in zip(grid, sections, strict=True):
        of_section = [each for each in found if each.row.section == section]
        present = [
            label
            for label in labels
            if any(each.row.contender.label == label for each in of_section)
        ]
        for axes, (name, measure, logarithmic) in zip(row, MEASURES, strict=True):
            _panel(axes, of_section, present, starts, measure, 1 if logarithmic else 100)
            axes.set_xlabel(name)
            if logarithmic:  # the same for all sections: what a cache saves is seen, too
                numbers = [measure(each).mean for each in found]
                style.number_axis(axes.xaxis, min(numbers), max(numbers))
            else:
                axes.set_xlim(-3, 103)
        _name_the_lines(row, of_section, present)
        row[0].set_title(section)
    for start, colour in style.length_colours(starts).items():  # also those of other sections
        marker = style.MARKERS[starts.index(start)]
        grid[0][-1].plot([], [], color=colour, marker=marker, linestyle="", label=f"{start}")
    style.legend_beside(grid[0][-1], "L_init")
    return figure


def _panel(
    axes: Any,
    of_section: Sequence[Finding],
    labels: Sequence[str],
    starts: tuple[int, ...],
    measure: Callable[[Finding], Estimate],
    scale: int,
) -> None:
    colours = style.length_colours(starts)
    for each in of_section:
        step = starts.index(each.row.start) / max(1, len(starts) - 1) - 0.5
        number = measure(each)
        axes.errorbar(
            scale * number.mean,
            labels.index(each.row.contender.label) + SPREAD * step,
            xerr=scale * (number.error or 0.0),
            color=colours[each.row.start],
            marker=style.MARKERS[starts.index(each.row.start)],
            markersize=7,
            linestyle="",
            elinewidth=1.4,
        )
    axes.set_ylim(len(labels) - 0.4, -0.6)
    for line in range(1, len(labels)):
        axes.axhline(line - 0.5, color=style.STYLE["grid.color"], linewidth=0.8, zorder=0)
    axes.grid(False, axis="y")


def _name_the_lines(row: Any, of_section: Sequence[Finding], labels: Sequence[str]) -> None:
    """Beside the first panel; the policy that the section speaks for in bold."""
    for axes in row:
        axes.set_yticks(range(len(labels)), ["" for _ in labels])
        axes.tick_params(axis="y", length=0)
    best = best_fixed(of_section)
    chosen = verdict(of_section, best).choice if best else None
    for text in row[0].set_yticklabels(labels):
        if text.get_text() == chosen:
            text.set_fontweight("bold")
    if best is not None:
        row[0].axvline(100 * best.accuracy, color=style.INK, linewidth=1, linestyle=":", zorder=0)
