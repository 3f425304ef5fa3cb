"""A probe as one HTML page: no server, no script, no network, nothing beside it."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from rho_eos.evals.probing.findings import Findings, Reliability, advice

WIDTH, HEIGHT, LEFT, BOTTOM = 640, 260, 44, 30


def page(found: Findings, about: dict[str, Any]) -> str:
    """`about` says which model was probed, how and with what."""
    pages = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True)
    return pages.get_template("page.html").render(
        found=found,
        about=about,
        advice=advice(found),
        curves=_curves(found),
        reliability=_reliability(found.reliability),
        size=(WIDTH, HEIGHT, LEFT, BOTTOM),
    )


def _curves(found: Findings) -> list[dict[str, Any]]:
    """The mean of F on each canvas, over tokens; x is the square root of the share of the longest,
    so that short canvases can be seen beside long ones."""
    longest = found.canvases[-1].length
    lines = []
    for at, each in enumerate(found.canvases):
        steps = len(each.curve) - 1
        points = [
            _point((each.length * k / steps / longest) ** 0.5, value)
            for k, value in enumerate(each.curve)
        ]
        tone = 70 - 50 * at / max(1, len(found.canvases) - 1)
        end = points[-1].split(",")
        lines.append({
            "points": " ".join(points), "tone": f"{tone:.0f}%", "length": each.length,
            "x": end[0], "y": end[1],
        })  # fmt: skip
    return lines


def _reliability(each: list[Reliability]) -> list[dict[str, str]]:
    dots = []
    for one in each:
        assert one.actual.interval is not None
        x, y = _point(one.predicted, one.actual.mean).split(",")
        low, high = (_point(one.predicted, bound).split(",")[1] for bound in one.actual.interval)
        percent = f"{100 * one.predicted:.0f}"
        dots.append({"x": x, "y": y, "low": low, "high": high, "predicted": percent})
    return dots


def _point(x: float, y: float) -> str:
    wide, high = WIDTH - LEFT - 12, HEIGHT - BOTTOM - 12
    return f"{LEFT + x * wide:.1f},{12 + (1 - y) * high:.1f}"
