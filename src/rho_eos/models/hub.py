"""Models on the Hub, by the calls of huggingface_hub: which commit is meant, and what it holds.

Opening a model fetches only what describes it: its JSON and text files, and of each weight file the
header. The weights are fetched when the model is loaded. Where the Hub cannot be asked, what is in
the client's cache is used.
"""

import logging
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants, errors, snapshot_download
from huggingface_hub.utils import logging as client_logging
from huggingface_hub.utils import tqdm

from rho_eos.base.errors import UserError
from rho_eos.models.known import did_you_mean

#: The files that describe a model, in its repository's top folder. No pickles and no code, ever.
SMALL_FILES = ["*.json", "*.txt", "*.model", "*.jinja"]
ANSWER_SECONDS = 10.0
LOG_IN = "log in with `hf auth login` or set HF_TOKEN"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A weight file that is not in the cache yet, as the Hub and the file's header describe it."""

    size: int
    checksum: str  # the sha256, by which the cache will name it
    parameters: Counter[str]  # numbers of each dtype


class _NoBar(tqdm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | {"disable": True})


def find_hub_folder(repo: str, revision: str | None) -> Path:
    """The folder of one commit, with the model's small files. The commit is the folder's name."""
    at = f" at revision {revision}" if revision else ""
    unanswered: Exception | None = None
    with _asking(
        repo, f"no such model: {repo!r} is no local folder, nor in the cache{at}", revision
    ):
        try:  # the client itself would wait for an answer without end
            HfApi().model_info(repo, revision=revision, timeout=ANSWER_SECONDS)
        except errors.RevisionNotFoundError:
            raise
        except (errors.HTTPError, OSError) as error:
            unanswered = error
        try:
            folder = snapshot_download(
                repo,
                revision=revision,
                allow_patterns=SMALL_FILES,
                ignore_patterns="*/*",
                tqdm_class=_NoBar,
                local_files_only=unanswered is not None,
            )
        except errors.LocalEntryNotFoundError as error:
            raise (unanswered or error) from error.__cause__
    if not Path(folder, "config.json").exists():
        raise UserError(f"{repo} has no config.json on the Hub, so it is no checkpoint")
    return Path(folder)


def remote_weights(repo: str, commit: str, names: Sequence[str]) -> dict[str, RemoteFile]:
    """Describe weight files that are not in the cache, from their first bytes."""
    found: dict[str, RemoteFile] = {}
    if not names:
        return found
    api = HfApi()
    with _asking(repo, f"{names[0]} of {repo} is not in the cache"):
        info = api.model_info(repo, revision=commit, files_metadata=True, timeout=ANSWER_SECONDS)
        stored = {file.rfilename: file for file in info.siblings or ()}
        for name in names:
            if name not in stored:
                raise UserError(
                    f"{repo} has no {name} on the Hub (weights are read from safetensors only)"
                )
            header = api.parse_safetensors_file_metadata(repo, name, revision=commit)
            count = Counter({str(kind): n for kind, n in header.parameter_count.items()})
            lfs = stored[name].lfs
            checksum = lfs.sha256 if lfs else str(stored[name].blob_id)
            found[name] = RemoteFile(stored[name].size or 0, checksum, count)
    return found


def fetch_weights(repo: str, folder: Path, remote: Mapping[str, RemoteFile]) -> None:
    """Fetch what is still missing of these files. On a terminal the client shows its bars."""
    missing = {name: file for name, file in remote.items() if not (folder / name).exists()}
    if not missing:
        return
    size, free = sum(file.size for file in missing.values()), shutil.disk_usage(folder).free
    if size > free:  # said before the first byte: after hours it would help nobody
        raise UserError(
            f"the weights of {repo} need {size / 2**30:,.1f} GiB more, but {folder.parent.parent} "
            f"has room for {free / 2**30:,.1f}: set HF_HOME to a folder on a larger disk"
        )
    logger.info("fetching %d files of %s, %.1f GiB", len(missing), repo, size / 2**30)
    bars = None if sys.stderr.isatty() else _NoBar
    with _asking(repo, f"run the same command again: not all weights of {repo} arrived"):
        snapshot_download(repo, revision=folder.name, allow_patterns=[*missing], tqdm_class=bars)


def checksums(files: Sequence[Path], remote: Mapping[str, RemoteFile]) -> dict[str, str] | None:
    """What the Hub calls the content of weight files, the same before and after they are fetched.

    None for files that did not come from a Hub.
    """
    found: dict[str, str] = {}
    for file in files:
        if file.is_symlink() and file.readlink().parent.name == "blobs":
            found[file.name] = file.readlink().name
        elif file.name in remote and not file.exists():
            found[file.name] = remote[file.name].checksum
        else:
            return None
    return found


@contextmanager
def _asking(repo: str, lead: str, revision: str | None = None) -> Iterator[None]:
    """Say what goes wrong in one sentence, and silence what the client logs of its attempts.

    `lead` begins the sentence where the reason alone does not say what the Hub was asked for.
    """
    verbosity = client_logging.get_verbosity()
    client_logging.set_verbosity_error()
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of the client, of what it speaks HTTP with, and of Xet
        raise UserError(_explain(error, repo, revision, lead)) from error
    finally:
        client_logging.set_verbosity(verbosity)


def _explain(error: BaseException, repo: str, revision: str | None, lead: str) -> str:
    """What is wrong, and what to do about it."""
    if isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__:
        error = error.__cause__  # the client's own summary says less
    hub, meant = f"the Hub at {constants.ENDPOINT}", did_you_mean(repo)
    match error:
        case errors.HFValidationError():
            return f"no such model: {repo!r} is neither a folder nor a Hub id{meant}"
        case errors.SafetensorsParsingError():
            return f"{repo} has damaged weights on the Hub: {_first_line(error)}"
        case errors.GatedRepoError():
            page = f"{constants.ENDPOINT}/{repo}"
            return f"{repo} is gated: accept its licence on {page}, and {LOG_IN}"
        case errors.RevisionNotFoundError():
            name = f"{repo} has no revision {revision!r} on the Hub"
            return f"{name}: give a branch, a tag or a commit"
        case errors.RepositoryNotFoundError():
            return (
                f"no such model: {repo!r} is no local folder, and not on the Hub either "
                f"(if it is private, {LOG_IN}){meant}"
            )
        case errors.OfflineModeIsEnabled():
            return f"{lead}, and HF_HUB_OFFLINE forbids to ask the Hub{meant}"
        case errors.HfHubHTTPError():
            status = error.response.status_code
            reasons = {
                401: f"the Hub does not accept your token: {LOG_IN}",
                403: f"the Hub forbids it (403): {error.server_message or 'no reason given'}",
                429: "the Hub says that it was asked too often (429): wait, or log in",
            }
            reason = reasons.get(status, f"{hub} answers with error {status}: try again later")
            return f"{lead}, and {reason}"
        case errors.HTTPError():
            return f"{lead}, and {hub} cannot be reached: {_first_line(error)}{meant}"
        case AssertionError() | KeyError() | TypeError() | ValueError():  # such as a login page
            return f"what answers at {constants.ENDPOINT} is no Hub: {error}"
    return f"{lead}: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
