"""The models on this machine: the embedded ones and those in the Hub cache."""

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from huggingface_hub import constants, scan_cache_dir
from huggingface_hub.errors import CacheNotFound

from rho_eos.base.errors import UserError
from rho_eos.models.family import find_family
from rho_eos.models.known import EMBEDDED
from rho_eos.models.sanity import check_files, read_json
from rho_eos.models.weights import measure, weight_files

#: Bytes that a parameter takes. Quantised weights carry scales, and some layers stay as they were.
BYTES = {"float32": 4.0, "bfloat16": 2.0, "int8": 1.1, "int4": 0.6}


def cached_models(free: int) -> list[dict[str, Any]]:
    """The embedded models, then every commit of every model in the cache, by name.

    Args:
        free: Bytes of memory, for the types in which a model would fit.
    """
    found = [_describe(name, folder, free) for name, folder in EMBEDDED.items()]
    try:
        repos = scan_cache_dir(constants.HF_HUB_CACHE).repos
    except (CacheNotFound, OSError):
        return found
    except ValueError as error:
        raise UserError(f"cannot list {constants.HF_HUB_CACHE}: it is no folder") from error
    for repo in sorted(repos, key=lambda repo: repo.repo_id.lower()):
        used = datetime.fromtimestamp(repo.last_accessed, UTC).isoformat(timespec="seconds")
        for commit in sorted(repo.revisions, key=lambda commit: commit.commit_hash):
            if repo.repo_type == "model":
                model = _describe(repo.repo_id, commit.snapshot_path, free)
                model |= {"revision": commit.commit_hash, "names": sorted(commit.refs)}
                found.append(model | {"bytes": commit.size_on_disk, "last_used": used})
    return found


def _describe(model: str, folder: Path, free: int) -> dict[str, Any]:
    family, parameters = None, None
    files: tuple[Path, ...] = ()
    with suppress(UserError):  # another kind of model, or a damaged one
        check_files(folder)
        family = find_family(read_json(folder / "config.json")).name
    with suppress(UserError):  # damaged or not whole: loading says how
        files = weight_files(folder)
        parameters = measure(files, {})[0]
    missing = sum(not file.exists() for file in files)
    return {
        "model": model,
        "revision": None,
        "names": [],
        "bytes": sum(file.stat().st_size for file in folder.iterdir() if file.is_file()),
        "family": family,
        "complete": parameters is not None,
        "weight_files": len(files),
        "missing_files": missing,
        "parameters": parameters,
        "fits": None if parameters is None else fitting(parameters, free),
        "last_used": None,
    }


def fitting(parameters: int, free: int) -> dict[str, bool]:
    """In which types so many parameters fit into so many bytes, before any activations."""
    return {name: parameters * size <= free for name, size in BYTES.items()}
