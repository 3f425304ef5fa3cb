"""How figures look: colours that colour-blind readers can tell apart, and large type."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

REGION = "#D55E00"
INK = "#222222"
FORMATS = (".png", ".svg", ".pdf")
STYLE = Path(__file__).with_name("figures.mplstyle")


def applied() -> Any:
    """A context in which figures look like this."""
    return matplotlib.rc_context(fname=STYLE)


def length_colours(lengths: Iterable[int]) -> dict[int, Any]:
    """Short to long is light to dark."""
    shades = matplotlib.colormaps["viridis_r"]
    each = sorted(lengths)
    return {n: shades(0.1 + 0.9 * at / max(1, len(each) - 1)) for at, n in enumerate(each)}


def panels(columns: int, rows: int = 1, width: float = 5.2, height: float = 4.2) -> tuple[Any, Any]:
    """A figure and its axes, (rows, columns), without the global state of pyplot."""
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def save(
    figure: Any, stem: Path, panels: bool = False, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Write a figure in every format; with `panels` each of its panels as a file, STEM-1, too."""
    files = _write(figure, stem, formats)
    if panels and len(figure.axes) > 1:
        for number, axes in enumerate(figure.axes, 1):
            _show_alone(axes)
            only = {"bbox_inches": "tight"}
            files += _write(figure, stem.with_name(f"{stem.name}-{number}"), formats, **only)
    return files


def _write(figure: Any, stem: Path, formats: Sequence[str], **more: Any) -> list[Path]:
    files = [stem.with_name(f"{stem.name}{suffix}") for suffix in formats]
    for file in files:  # the same picture is the same file, so there is no date in it
        dated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        figure.savefig(file, dpi=160, metadata=dated.get(file.suffix), **more)
    return files


def _show_alone(axes: Any) -> None:
    """Hide all other panels; this one takes over what it left to the first of its row to say."""
    every = axes.figure.axes
    row = axes.get_subplotspec().rowspan
    first = next(each for each in every if each.get_subplotspec().rowspan == row)
    for each in every:
        each.set_visible(each is axes)
    axes.set(
        title=axes.get_title(loc="left") or first.get_title(loc="left"),
        ylabel=axes.get_ylabel() or first.get_ylabel(),
    )
    if not any(text.get_text() for text in axes.get_yticklabels()):
        words = [text.get_text() for text in first.get_yticklabels()]
        axes.set_yticks(first.get_yticks(), words)
    if axes.get_legend() is None and (again := getattr(axes.figure, "legend_again", None)):
        again(axes)


def nothing() -> Any:
    """For a line of a legend that explains what no symbol stands for, such as bars."""
    return Line2D([], [], linestyle="")


def legend_beside(axes: Any, title: str, *more: tuple[Any, str]) -> None:
    """Of all axes, outside on the right, where it covers nothing; each label once."""
    named: dict[str, Any] = {}
    for each in axes.figure.axes:
        handles, labels = each.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    named |= {label: handle for handle, label in more}

    def place(beside: Any) -> None:
        beside.legend(
            list(named.values()),
            list(named),
            title=title,
            loc="upper left",
            bbox_to_anchor=(1.02, 1.0),
            alignment="left",
            borderaxespad=0,
        )

    place(axes)
    axes.figure.legend_again = place  # beside a panel that is shown alone


def plain_numbers(axis: Any, wide: bool) -> None:
    """On a logarithmic axis 1,000 and 3,000, not powers; between them only where it is short."""
    axis.set_major_locator(LogLocator(subs=(1, 3)) if wide else MaxNLocator(4))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axis.set_minor_locator(NullLocator())
