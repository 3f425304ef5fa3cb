"""How figures look: colours that colour-blind readers can tell apart, and large type."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

MARKERS = "oD^vsPX*"  # of lengths, short to long
REGION = "#D55E00"
GRID = "#E6E6E6"
INK = "#222222"
STYLE = Path(__file__).with_name("figures.mplstyle")


def applied() -> Any:
    """A context in which figures look like this."""
    return matplotlib.rc_context(fname=STYLE)


def length_colours(lengths: tuple[int, ...]) -> dict[int, Any]:
    """Short to long is light to dark."""
    shades = matplotlib.colormaps["viridis_r"]
    last = max(1, len(lengths) - 1)
    return {length: shades(0.1 + 0.9 * at / last) for at, length in enumerate(lengths)}


def length_marks(lengths: tuple[int, ...]) -> dict[int, tuple[Any, str]]:
    """A colour and a marker for each length; there are more lengths than markers at times."""
    colours = length_colours(lengths)
    return {n: (colours[n], MARKERS[at % len(MARKERS)]) for at, n in enumerate(lengths)}


def panels(columns: int, rows: int = 1, width: float = 5.2, height: float = 4.2) -> tuple[Any, Any]:
    """A figure and its axes, (rows, columns), without the global state of pyplot."""
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def save(figure: Any, stem: Path) -> None:
    figure.savefig(stem.with_suffix(".png"), dpi=160)
    figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})


def legend_beside(axes: Any, title: str, *more: tuple[Any, str]) -> None:
    """Outside on the right, where it covers nothing; each label once."""
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True)) | {label: handle for handle, label in more}
    axes.legend(
        list(named.values()),
        list(named),
        title=title,
        loc="upper left",
        bbox_to_anchor=(1.02, 1.0),
        alignment="left",
        borderaxespad=0,
    )


def length_axis(axes: Any, lengths: Sequence[int]) -> None:
    """Doubling lengths are equal distances, and are written out."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.set_xlim(right=lengths[-1] * 1.15)
    axes.minorticks_off()


def number_axis(axis: Any, lowest: float, highest: float) -> None:
    """A logarithmic axis for these numbers, with some of them written out: 1,000, 3,000, 10,000."""
    axis.axes.set_xscale("log")
    axis.axes.set_xlim(lowest / 1.2, highest * 1.2)
    wide = highest > 6 * lowest
    axis.set_major_locator(LogLocator(subs=(1, 3)) if wide else MaxNLocator(4))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axis.set_minor_locator(NullLocator())
