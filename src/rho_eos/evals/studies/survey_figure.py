"""A survey as one picture: a line for each policy, and on it a point for each initial length.

Where the points of a line lie together, the initial length does not matter to that policy.
"""

from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from typing import Any

from rho_eos.evals.studies import style
from rho_eos.evals.studies.findings import Finding, best_fixed, by_section, start_name, verdict

#: Of each column of panels: the number, its axis, and whether it is a share, shown in per cent.
MEASURES = (
    ("accuracy", "accuracy (%; dotted: best fixed)", True),
    ("positions", "positions of an answer", False),
    ("e_ratio", "E_ratio (%)", True),
)
LINE = 0.36  # inches that a policy takes
SPREAD = 0.52  # of a line that its points take, so that equal ones do not cover each other


def write_figure(found: Iterable[Finding], stem: Path, panels: bool = False) -> None:
    with style.applied():
        style.save(draw(found), stem, panels)


def draw(found: Iterable[Finding]) -> Any:
    """Sections in which policies are compared; if there are none, all."""
    every = by_section(found)
    sections = {name: of for name, of in every.items() if len({one.policy for one in of}) > 1}
    sections = sections or every
    drawn = [each for members in sections.values() for each in members]
    colours = style.length_colours({each.start for each in drawn if each.start is not None})
    last = max(1, len(colours) - 1)
    looks: dict[int | None, tuple[Any, str, float]] = {
        start: (colour, marker, SPREAD * (at / last - 0.5))
        for at, ((start, colour), marker) in enumerate(zip(colours.items(), cycle("oD^vsPX*")))
    }
    looks[None] = (style.INK, "o", 0.0)  # where the initial length makes no difference
    height = 1.1 + LINE * len({each.policy for each in drawn})
    figure, grid = style.panels(len(MEASURES), len(sections), width=4.3, height=height)
    for row, (section, members) in zip(grid, sections.items(), strict=True):
        labels = list(dict.fromkeys(each.policy for each in members))
        for axes, (measure, title, share) in zip(row, MEASURES, strict=True):
            scale = 100 if share else 1
            for each in members:
                number, (colour, marker, step) = getattr(each, measure), looks[each.start]
                error = number.error or 0.0
                low, high = number.interval or (number.mean - error, number.mean + error)
                bars = max(0.0, number.mean - low), max(0.0, high - number.mean)
                axes.errorbar(
                    scale * number.mean, labels.index(each.policy) + step,
                    xerr=[[scale * bar] for bar in bars], color=colour, marker=marker, markersize=7,
                    linestyle="", elinewidth=1.4, label=start_name(each.start),
                )  # fmt: skip
            axes.set(xlabel=title, ylim=(len(labels) - 0.4, -0.6))
            axes.set_yticks(range(len(labels)), labels if axes is row[0] else [""] * len(labels))
            axes.tick_params(axis="y", length=0)
            if share:
                axes.set_xlim(-3, 103)
            else:  # the same for all sections, so that what a cache saves is seen, too
                numbers = [getattr(each, measure).mean for each in drawn]
                lowest, highest = min(numbers), max(numbers)
                axes.set(xscale="log", xlim=(lowest / 1.2, highest * 1.2))
                style.plain_numbers(axes.xaxis, wide=highest > 6 * lowest)
        row[0].set_title(section)
        if best := best_fixed(members):
            row[0].axvline(100 * best.accuracy.mean, color=style.INK, linewidth=1, linestyle=":")
            choice = (verdict(members).choice or "").removesuffix(f" {best.start}")
            for text in row[0].get_yticklabels():
                text.set_fontweight("bold" if text.get_text() == choice else "normal")
    note = "bars: 95% interval of\naccuracy, else\n± standard error"
    style.legend_beside(grid[0][-1], "L_init", (style.nothing(), note))
    return figure
