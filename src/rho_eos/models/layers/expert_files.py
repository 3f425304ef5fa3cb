"""Strictness about experts that are stored one by one and loaded as one tensor.

transformers stacks whatever experts a checkpoint holds. One that is missing shows only as a shape
of the whole layer, and one under a wrong number would silently take another's place, so the names
in the files are looked at first.
"""

import re
from collections import Counter
from pathlib import Path

from safetensors import SafetensorError, safe_open

from rho_eos.base.errors import UserError

_PARTS = ("gate_proj.weight", "up_proj.weight", "down_proj.weight")
_EXPERT = re.compile(r"(.*\.experts\.)(\d+)\.((?:gate|up|down)_proj\.weight)")


def check_experts(folder: Path, model: str) -> None:
    """Raise where a layer with experts lacks one, or has one of another shape than the others."""
    shapes: dict[tuple[str, int, str], tuple[int, ...]] = {}  # by layer, number and part
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt") as weights:
                for name in weights.keys():  # noqa: SIM118 (not a dict)
                    if found := _EXPERT.fullmatch(name):
                        shape = tuple(weights.get_slice(name).get_shape())
                        shapes[found[1], int(found[2]), found[3]] = shape
        except SafetensorError as error:
            raise UserError(f"{file} is damaged or incomplete: {error}") from error
    layers = {layer for layer, _, _ in shapes}
    numbers = range(1 + max((number for _, number, _ in shapes), default=-1))
    wanted = {(layer, number, part) for layer in layers for number in numbers for part in _PARTS}
    usual = {
        part: Counter(shapes[key] for key in shapes if key[2] == part).most_common(1)[0][0]
        for part in {part for _, _, part in shapes}
    }
    odd = {key for key, shape in shapes.items() if shape != usual[key[2]]}
    for what, keys in (("lacks", wanted - set(shapes)), ("has misshapen", odd)):
        if keys:
            layer, number, part = min(keys)
            raise UserError(
                f"the checkpoint does not fit {model}: it {what} {layer}{number}.{part}"
            )
