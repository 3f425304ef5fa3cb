"""A survey as one picture: accuracy, cost and E_ratio against the initial length."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

from rho_eos.reproduce import style
from rho_eos.reproduce.cells import Study
from rho_eos.reproduce.survey import Survey
from rho_eos.reproduce.survey_table import Finding, findings

#: Of each row of panels: its axis, the number, and whether that is drawn on a logarithmic axis.
MEASURES: tuple[tuple[str, Callable[[Finding], float], bool], ...] = (
    ("accuracy (%)", lambda found: 100 * found.accuracy, False),
    ("positions of an answer", lambda found: found.positions, True),
    ("E_ratio (%)", lambda found: 100 * _e_ratio(found), False),
)


def _e_ratio(found: Finding) -> float:
    assert found.summary.e_ratio is not None
    return found.summary.e_ratio.mean


def write_survey_figure(study: Study, survey: Survey) -> Path:
    """PNG and SVG, named as the survey's table is."""
    found = findings(study, survey)
    stem = study.folder / survey.name
    with matplotlib.rc_context(style.STYLE):
        style.save(draw(found), stem)
    return stem


def draw(found: Sequence[Finding]) -> Any:
    sections = list(dict.fromkeys(each.row.section for each in found))
    labels = list(dict.fromkeys(each.row.contender.label for each in found))
    looks = dict(zip(labels, style.many_looks(len(labels)), strict=True))
    starts = tuple(sorted({each.row.start for each in found}))
    width = 4.4 + 3 / len(sections)  # the legend stands beside the panels
    figure, grid = style.panels(len(sections), len(MEASURES), width=width, height=3.4)
    for column, section in zip(grid.T, sections, strict=True):
        for axes, (name, measure, logarithmic) in zip(column, MEASURES, strict=True):
            for label in labels:
                members = [
                    each
                    for each in found
                    if (each.row.section, each.row.contender.label) == (section, label)
                ]
                x = [each.row.start for each in members]
                axes.plot(x, [measure(each) for each in members], label=label, **looks[label])
            style.length_axis(axes, starts)
            if logarithmic:
                axes.set_yscale("log")
            else:
                axes.set_ylim(-3, 103)
            axes.set_ylabel(name if axes in grid[:, 0] else "")
        column[0].set_title(section)
        column[-1].set_xlabel("L_init (tokens)")
    style.legend_beside(grid[0][-1], "policy")
    return figure
