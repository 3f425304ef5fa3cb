"""What the local Hub cache holds, as `rho-eos models` lists it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import constants, scan_cache_dir
from huggingface_hub.errors import CacheNotFound

from rho_eos.base.errors import UserError
from rho_eos.models import FAMILIES
from rho_eos.models.known import EMBEDDED
from rho_eos.models.loading import measure, weight_files
from rho_eos.models.sanity import check_files, read_json

#: Bytes that a parameter takes. Quantised weights carry scales, and some layers stay as they were.
BYTES = {"float32": 4.0, "bfloat16": 2.0, "int8": 1.1, "int4": 0.6}


@dataclass(frozen=True, slots=True)
class CachedModel:
    model: str
    revision: str | None
    names: tuple[str, ...]  # branches and tags that meant this revision when they were last asked
    bytes: int
    family: str | None
    files: int  # of the weights, as many as there should be
    missing: int
    parameters: int | None
    last_used: datetime | None

    @property
    def complete(self) -> bool:
        return self.missing == 0

    def as_dict(self, free: int) -> dict[str, Any]:
        fits = None if self.parameters is None else fitting(self.parameters, free)
        return {
            "model": self.model,
            "revision": self.revision,
            "names": list(self.names),
            "bytes": self.bytes,
            "family": self.family,
            "complete": self.complete,
            "weight_files": self.files,
            "missing_files": self.missing,
            "parameters": self.parameters,
            "fits": fits,
            "last_used": self.last_used and self.last_used.isoformat(timespec="seconds"),
        }


def cached_models() -> list[CachedModel]:
    """The embedded models, then every commit of every model in the cache, by name."""
    embedded = [
        _describe(name, folder, None, (), _bytes_in(folder), None)
        for name, folder in EMBEDDED.items()
    ]
    try:
        cache = scan_cache_dir(constants.HF_HUB_CACHE)
    except (CacheNotFound, OSError):
        return embedded
    except ValueError as error:
        raise UserError(f"cannot list {constants.HF_HUB_CACHE}: it is no folder") from error
    found = [
        _describe(
            repo.repo_id,
            revision.snapshot_path,
            revision.commit_hash,
            tuple(sorted(revision.refs)),
            revision.size_on_disk,
            datetime.fromtimestamp(repo.last_accessed, UTC),
        )
        for repo in cache.repos
        if repo.repo_type == "model"
        for revision in repo.revisions
    ]
    return [*embedded, *sorted(found, key=lambda each: (each.model.lower(), each.revision or ""))]


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())


def _describe(
    model: str,
    folder: Path,
    revision: str | None,
    names: tuple[str, ...],
    size: int,
    last_used: datetime | None,
) -> CachedModel:
    config = _read(folder / "config.json")
    try:
        files = weight_files(folder)
        missing = sum(not file.exists() for file in files)
        parameters = _estimate(folder, config) if missing else measure(files, None)[0]
    except UserError:  # damaged: loading says how
        files, missing, parameters = (), 1, None
    family = next((name for name, known in FAMILIES.items() if known.matches(config)), None)
    return CachedModel(
        model, revision, names, size, family, len(files), missing, parameters, last_used
    )


def _estimate(folder: Path, config: dict[str, Any]) -> int | None:
    """Of weights that are not all here: the bytes their index names, over those of a parameter."""
    metadata = _read(folder / "model.safetensors.index.json").get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    dtype = getattr(torch, str(config.get("dtype") or config.get("torch_dtype")), None)
    if not isinstance(total, int | float) or not isinstance(dtype, torch.dtype):
        return None
    return int(total) // dtype.itemsize


def _read(path: Path) -> dict[str, Any]:
    try:
        check_files(path.parent)
        return read_json(path)
    except UserError:
        return {}


def fitting(parameters: int, free: int) -> dict[str, bool]:
    """In which types so many parameters fit into so many bytes, before any activations."""
    return {name: parameters * size <= free for name, size in BYTES.items()}
