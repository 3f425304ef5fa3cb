"""Strictness about experts that are stored one by one and loaded as one tensor.

transformers stacks whatever experts a checkpoint holds. One that is missing shows only as a shape
of the whole layer, and one under a wrong number would silently take another's place, so the names
in the files are looked at first.
"""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from safetensors import SafetensorError, safe_open

from rho_eos.base.errors import UserError

_EXPERT = re.compile(r"(.*\.experts\.)(\d+)\.((?:gate|up|down)_proj\.weight)$")
_PARTS = ("gate_proj.weight", "up_proj.weight", "down_proj.weight")

Shapes = dict[str, tuple[int, ...]]


def check_experts(folder: Path, model: str) -> None:
    """Raise where a layer with experts lacks one, or has one of another shape than the others."""
    shapes: Shapes = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt") as weights:
                for name in weights.keys():  # noqa: SIM118 (not a dict)
                    if _EXPERT.match(name):
                        shapes[name] = tuple(weights.get_slice(name).get_shape())
        except SafetensorError as error:
            raise UserError(f"{file} is damaged or incomplete: {error}") from error
    for what, names in (("lacks", _missing(shapes)), ("has misshapen", _odd(shapes))):
        first = min(names, default=None)
        if first is not None:
            raise UserError(f"the checkpoint does not fit {model}: it {what} {first}")


def _missing(shapes: Shapes) -> set[str]:
    layers, highest = set(), -1
    for prefix, number, _ in _parsed(shapes):
        layers.add(prefix)
        highest = max(highest, number)
    everything = {f"{p}{n}.{part}" for p in layers for n in range(highest + 1) for part in _PARTS}
    return everything - set(shapes)


def _odd(shapes: Shapes) -> set[str]:
    """Those that differ from what most experts have in the same part."""
    odd: set[str] = set()
    for part in _PARTS:
        same = {name: shape for name, shape in shapes.items() if name.endswith(part)}
        for usual, _ in Counter(same.values()).most_common(1):
            odd |= {name for name, shape in same.items() if shape != usual}
    return odd


def _parsed(names: Iterable[str]) -> Iterable[tuple[str, int, str]]:
    for name in names:
        if found := _EXPERT.match(name):
            yield found[1], int(found[2]), found[3]
