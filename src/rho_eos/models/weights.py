"""Where a checkpoint's weights are, and what they are, from the headers of their files."""

from collections import Counter
from collections.abc import Mapping
from math import prod
from pathlib import Path

from safetensors import SafetensorError, safe_open

from rho_eos.base.errors import UserError
from rho_eos.models.hub import RemoteFile
from rho_eos.models.sanity import read_json


def weight_files(folder: Path) -> tuple[Path, ...]:
    """Where the weights are, or will be when they are fetched."""
    index = folder / "model.safetensors.index.json"
    single = folder / "model.safetensors"
    if single.exists() or not index.exists():  # transformers takes the single one, too
        return (single,)
    shards = read_json(index).get("weight_map")
    names = sorted(set(map(str, shards.values()))) if isinstance(shards, dict) else []
    if not names or any(not _is_file_name(name) for name in names):
        raise UserError(f"{index} is damaged: its weight_map does not name files of its folder")
    return tuple(folder / name for name in names)


def _is_file_name(name: str) -> bool:
    """A weight file beside its index: neither a path nor anything else."""
    return name.endswith(".safetensors") and not set(name) & set("/\\\0") and name[0] != "."


def measure(
    files: tuple[Path, ...], remote: Mapping[str, RemoteFile]
) -> tuple[int, int, tuple[str, ...]]:
    """Parameters, bytes, and dtypes with that of most weights first, from the files' headers.

    A damaged file is named.
    """
    parameters: Counter[str] = Counter()
    stored = 0
    for file in files:
        if file.exists():
            count, size = _header(file), file.stat().st_size
        elif file.name in remote:
            count, size = remote[file.name].parameters, remote[file.name].size
        else:
            raise UserError(
                f"{file.parent} has no {file.name} (weights are read from safetensors only)"
            )
        parameters += count
        stored += size
    dtypes = tuple(dtype for dtype, _ in parameters.most_common())
    return parameters.total(), stored, dtypes


def _header(file: Path) -> Counter[str]:
    """How many numbers of each dtype it holds."""
    parameters: Counter[str] = Counter()
    try:
        with safe_open(file, framework="pt") as weights:
            for key in weights.keys():  # noqa: SIM118 (not a dict)
                piece = weights.get_slice(key)
                parameters[str(piece.get_dtype())] += prod(piece.get_shape())
    except (SafetensorError, OSError, RuntimeError, OverflowError) as error:
        raise UserError(f"{file} is damaged or incomplete: {error}") from error
    return parameters
