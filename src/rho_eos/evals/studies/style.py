"""How figures look: colours that colour-blind readers can tell apart, and large type."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

REGION = "#D55E00"
INK = "#222222"
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


def save(figure: Any, stem: Path) -> None:
    figure.savefig(stem.with_suffix(".png"), dpi=160)
    figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})


def legend_beside(axes: Any, title: str, *more: tuple[Any, str]) -> None:
    """Of all axes, outside on the right, where it covers nothing; each label once."""
    named: dict[str, Any] = {}
    for each in axes.figure.axes:
        handles, labels = each.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    named |= {label: handle for handle, label in more}
    axes.legend(
        list(named.values()),
        list(named),
        title=title,
        loc="upper left",
        bbox_to_anchor=(1.02, 1.0),
        alignment="left",
        borderaxespad=0,
    )
