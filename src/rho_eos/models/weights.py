"""Where a checkpoint's weights are, and what they are, from the headers of their files."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from statistics import mode

from huggingface_hub.utils import SafetensorsFileMetadata
from safetensors import SafetensorError, safe_open

from rho_eos.base.errors import UserError
from rho_eos.models.sanity import read_json

_EXPERT = re.compile(r"(.*\.experts\.)(\d+)\.((?:gate|up|down)_proj\.weight)")


def weight_files(folder: Path) -> tuple[Path, ...]:
    """Where the weights are, or will be when they are fetched."""
    index = folder / "model.safetensors.index.json"
    single = folder / "model.safetensors"
    if single.exists() or not index.exists():  # transformers takes the single one, too
        return (single,)
    shards = read_json(index).get("weight_map")
    names = sorted(set(map(str, shards.values()))) if isinstance(shards, dict) else []
    if not names or not all(re.fullmatch(r"[^./\\\0][^/\\\0]*\.safetensors", n) for n in names):
        raise UserError(f"{index} is damaged: its weight_map does not name files of its folder")
    return tuple(folder / name for name in names)


def measure(
    files: tuple[Path, ...], remote: Mapping[str, SafetensorsFileMetadata]
) -> tuple[int, int, tuple[str, ...]]:
    """Parameters, bytes, and dtypes with that of most weights first.

    Args:
        files: Where the weight files are, or will be.
        remote: The headers of those that are not there yet.
    """
    parameters: Counter[str] = Counter()
    for file in files:
        if file.exists():
            for _, dtype, shape in tensors_of(file):
                parameters[dtype] += prod(shape)
        elif file.name in remote:
            parameters.update(remote[file.name].parameter_count)
        else:
            raise UserError(
                f"{file.parent} has no {file.name} (weights are read from safetensors only)"
            )
    stored = sum(count * _bits(dtype) for dtype, count in parameters.items()) // 8
    return parameters.total(), stored, tuple(dtype for dtype, _ in parameters.most_common())


def _bits(dtype: str) -> int:
    """The bits of a type. BF16, F8_E4M3 and the like say them; BOOL, which does not, has 8."""
    number = re.search(r"\d+", dtype)
    return int(number[0]) if number else 8


def check_experts(folder: Path, model: str) -> None:
    """Raise where a layer with experts lacks one, or has one of another shape than the others.

    transformers stacks whatever experts a checkpoint holds. One that is missing shows only as a
    shape of the whole layer, and one under a wrong number would silently take another's place, so
    the names in the files are looked at first.
    """
    shapes: dict[tuple[str, int, str], tuple[int, ...]] = {}  # by layer, number and part
    for file in sorted(folder.glob("*.safetensors")):
        for name, _, shape in tensors_of(file):
            if found := _EXPERT.fullmatch(name):
                shapes[found[1], int(found[2]), found[3]] = shape
    numbers = range(1 + max((number for _, number, _ in shapes), default=-1))
    usual = {  # the shape that most experts have
        part: mode(shape for (_, _, each), shape in shapes.items() if each == part)
        for part in {part for _, _, part in shapes}
    }
    for layer, part in sorted({(layer, part) for layer, _, part in shapes}):
        for number in numbers:
            own = shapes.get((layer, number, part))
            if own != usual[part]:
                what = "lacks" if own is None else "has misshapen"
                raise UserError(
                    f"the checkpoint does not fit {model}: it {what} {layer}{number}.{part}"
                )


def tensors_of(file: Path) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Name, dtype and shape of all weights in a file. The error of a damaged file names it."""
    try:
        with safe_open(file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 (not a dict)
                piece = weights.get_slice(name)
                yield name, str(piece.get_dtype()), tuple(piece.get_shape())
    except (SafetensorError, OSError, RuntimeError, OverflowError) as error:
        raise UserError(f"{file} is damaged or incomplete: {error}") from error
