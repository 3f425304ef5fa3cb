"""Weights from the Hub to the local cache, continued where an earlier run was cut off.

The client throws away what it has of a file when a download ends early, so the next run starts the
file anew, and a shard may have five gigabytes. Here a large file grows under a name that the next
run finds, is checked against its sha256, and then given to the client's cache.
"""

import logging
import shutil
import sys
from collections.abc import Iterable
from hashlib import file_digest
from pathlib import Path

from huggingface_hub import hf_hub_url
from huggingface_hub.errors import HfHubHTTPError, HTTPError
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import WeakFileLock, build_hf_headers

from rho_eos.base.errors import UserError
from rho_eos.models.hub import HUB_ERRORS, HubFile, HubModel, explain, fetch_file, quiet_client

logger = logging.getLogger(__name__)


def fetch_weights(model: HubModel, files: Iterable[Path]) -> None:
    """Have these files of the model's folder on disk. A terminal sees a bar for each."""
    missing = {file.name: model.file(file.name) for file in files if not file.exists()}
    _check_room(model, missing)
    if missing:
        size = sum(file.size for file in missing.values()) / 2**30
        logger.info("fetching %d files of %s, %.1f GiB", len(missing), model.repo, size)
    for name, file in missing.items():
        try:
            with quiet_client(bars=sys.stderr.isatty()):
                if file.large:
                    _fetch_large(model, name, file)
            with quiet_client():
                fetch_file(model.repo, name, model.commit)  # of a large one now only the link
        except HUB_ERRORS as error:
            lead = f"{name} of {model.repo} is not whole yet, run the same command again to go on"
            raise UserError(explain(error, model.repo, model.commit, lead)) from error


def _fetch_large(model: HubModel, name: str, file: HubFile) -> None:
    storage = model.folder.parent.parent
    blob = storage / "blobs" / file.etag
    lock = storage.parent / ".locks" / storage.name / f"{file.etag}.lock"
    for folder in (blob.parent, lock.parent):
        folder.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(lock):  # several engines of one machine may want the same file
        if blob.exists():
            return
        partial = _partial(model, file)
        _grow(partial, hf_hub_url(model.repo, name, revision=model.commit), name, file.size)
        with partial.open("rb") as content:
            arrived = file_digest(content, "sha256").hexdigest()
        if arrived != file.etag:
            partial.unlink()
            raise UserError(
                f"{name} of {model.repo} arrived damaged and was thrown away: its sha256 is not "
                "the one the Hub names; run the same command again"
            )
        partial.replace(blob)


def _grow(partial: Path, url: str, name: str, size: int) -> None:
    """Ask for what is missing, again and again as long as something comes."""
    if partial.exists() and partial.stat().st_size > size:
        partial.unlink()
    headers = build_hf_headers() | {"Accept-Encoding": "identity"}
    while True:
        with partial.open("ab") as content:
            before = content.tell()
            try:
                http_get(
                    url,
                    content,
                    resume_size=before,
                    headers=headers,
                    expected_size=size,
                    displayed_filename=name,
                )
                return
            except HfHubHTTPError:
                raise
            except HTTPError:
                content.flush()
                if content.tell() <= before:
                    raise


def _partial(model: HubModel, file: HubFile) -> Path:
    """Not a name that the client uses: it may write pieces of a file out of their order."""
    return model.folder.parent.parent / "blobs" / f"{file.etag}.rho-eos.incomplete"


def _check_room(model: HubModel, missing: dict[str, HubFile]) -> None:
    """Said before the first byte: a full disk hours later helps nobody."""
    wanted = 0
    for file in missing.values():
        partial = _partial(model, file)
        wanted += file.size - (partial.stat().st_size if partial.exists() else 0)
    free = shutil.disk_usage(model.folder).free
    if wanted > free:
        raise UserError(
            f"the weights of {model.repo} need {wanted / 2**30:,.1f} GiB more, but "
            f"{model.folder.parent.parent} has room for {free / 2**30:,.1f}: "
            "set HF_HOME to a folder on a larger disk"
        )
