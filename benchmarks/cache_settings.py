"""What the settings of the window cache do: one after the other is moved, then some together.

    python -m benchmarks.cache_settings --out cache-settings.json --picture cache-settings.png

Positions computed, as a share of exact decoding, and accuracy, at τ 0.999, averaged over fixed 256,
Asym and scout. The problems are not those that `benchmarks.cache` reports on: defaults are
chosen here and judged there. Finished cells are kept and not run again.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.cache import POLICIES, run_cell
from benchmarks.problems import REPORTED
from rho_eos import LLM, DecodeParams

SETTINGS: dict[str, tuple[float, ...]] = {
    "cache_window": (16, 24, 32, 48),
    "cache_commits": (16, 32, 48, 64),
    "cache_steps": (4, 8, 12, 16, 24),
    "cache_unsure": (0, 0.5, 0.9),
}
#: Where the sweep stands when one of them is moved: the values of the first prototype.
START: dict[str, float] = {
    "cache_window": 32,
    "cache_commits": 32,
    "cache_steps": 8,
    "cache_unsure": 0,
}
TOGETHER: tuple[dict[str, float], ...] = (
    {"cache_steps": 24, "cache_commits": 48},
    {"cache_steps": 24, "cache_window": 24, "cache_commits": 48},
)
DECIDING = ("fixed 256", "Asym from 64", "scout")
THRESHOLD = 0.999


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=12, help="problems a task")
    parser.add_argument("--out", type=Path, default=Path("cache-settings.json"))
    parser.add_argument("--picture", type=Path, default=Path("cache-settings.png"))
    parser.add_argument(
        "--others", nargs="*", default=[], help="further ones: name=value,name=value"
    )
    options = parser.parse_args()
    done: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    llm = LLM("tiny", max_rows=8)
    console = Console()
    ways = [{name: value} for name, values in SETTINGS.items() for value in values]
    ways += TOGETHER
    ways += [dict(_parsed(pair) for pair in text.split(",")) for text in options.others]
    table = Table(title=f"{options.limit} problems a task, τ {THRESHOLD}", title_justify="left")
    for heading in ("settings", "right", "of exact's positions", *DECIDING):
        table.add_column(heading, justify="left" if heading == "settings" else "right")
    points = []
    for way in ways:
        cells = {}
        for policy in DECIDING:
            how = {"threshold": THRESHOLD, **POLICIES[policy]}
            for mode, more in (("exact", {}), ("window", way)):
                key = f"{options.limit} {policy} {mode} {json.dumps(more)}"
                if key not in done:
                    with console.status(key):
                        moved = START | more if mode == "window" else {}
                        done[key] = run_cell(llm, how | moved, mode, options.limit, REPORTED)
                    options.out.write_text(json.dumps(done, indent=2) + "\n")
                cells[policy, mode] = done[key]
        shares = [
            cells[policy, "window"]["positions"] / cells[policy, "exact"]["positions"]
            for policy in DECIDING
        ]
        lost = [
            cells[policy, "exact"]["accuracy"] - cells[policy, "window"]["accuracy"]
            for policy in DECIDING
        ]
        change = round(-float(np.mean(lost)), 6) + 0.0  # no -0.0
        points.append((way, float(np.mean(shares)), change))
        table.add_row(
            ", ".join(f"{name.removeprefix('cache_')} {value:g}" for name, value in way.items()),
            f"{change:+.1%}",
            f"{np.mean(shares):.1%}",
            *(f"{share:.1%}" for share in shares),
        )
    console.print(table)
    draw(points, options.picture)
    return 0


def _parsed(pair: str) -> tuple[str, float]:
    name, _, value = pair.partition("=")
    return name, float(value) if "." in value else int(value)


def draw(points: list[tuple[dict[str, float], float, float]], path: Path) -> None:
    """One panel a setting: the share of positions, and above it what accuracy it costs."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    defaults = DecodeParams()
    figure, panels = pyplot.subplots(
        2, len(SETTINGS), figsize=(12, 4.6), sharey="row", sharex="col", layout="constrained"
    )
    for column, name in enumerate(SETTINGS):
        mine = [(way[name], share, change) for way, share, change in points if list(way) == [name]]
        values, shares, changes = zip(*mine, strict=True)
        top, bottom = panels[0][column], panels[1][column]
        top.plot(values, [100 * change for change in changes], "o-", color="#b3541e")
        bottom.plot(values, [100 * share for share in shares], "o-", color="#2a6f97")
        for panel in (top, bottom):
            panel.axvline(START[name], color="#999999", linewidth=1, linestyle=":")
            panel.axvline(getattr(defaults, name), color="#333333", linewidth=1)
            panel.spines[["top", "right"]].set_visible(False)
        top.axhline(0, color="#cccccc", linewidth=1, zorder=0)
        bottom.set_xlabel(name)
    panels[0][0].set_ylabel("points of accuracy\nagainst exact")
    panels[1][0].set_ylabel("% of exact's positions")
    lost = max(5.0, *(-100 * change for _, _, change in points))
    panels[0][0].set_ylim(-lost, 5)
    panels[1][0].set_ylim(0, 110 * max(share for _, share, _ in points))
    figure.suptitle(
        "Each setting alone, the others at the dotted lines; the defaults are the solid ones",
        x=0.01,
        ha="left",
    )
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main())
