"""Where models and adapters are: in a folder, or on the Hub by the calls of huggingface_hub.

Opening a model fetches only what describes it: its JSON and text files, and of each weight file the
header. The weights are fetched when the model is loaded. Where the Hub cannot be asked, what is in
the client's cache is used.
"""

import logging
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants, errors, snapshot_download
from huggingface_hub.utils import SafetensorsFileMetadata, tqdm
from huggingface_hub.utils import logging as client_logging

from rho_eos.base.errors import UserError, first_line
from rho_eos.models.known import EMBEDDED, did_you_mean

#: The files that describe a model, in its repository's top folder. No pickles and no code, ever.
SMALL_FILES = ["*.json", "*.txt", "*.model", "*.jinja"]
#: The file by which a folder is known as what it holds.
CONFIGS = {"model": "config.json", "adapter": "adapter_config.json"}
ANSWER_SECONDS = 10.0
LOG_IN = "log in with `hf auth login` or set HF_TOKEN"

logger = logging.getLogger(__name__)


class _NoBar(tqdm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | {"disable": True})


def find_folder(
    given: str, revision: str | None = None, what: str = "model"
) -> tuple[Path, str | None]:
    """An embedded model, a local folder, or a Hub id: its folder may still lack the weights.

    Args:
        given: What was asked for.
        revision: The branch, tag or commit of a Hub id.
        what: `model` or `adapter`.

    Returns:
        The folder, and the Hub id where it is one.
    """
    if what == "model" and given in EMBEDDED:
        return EMBEDDED[given], None
    path = Path(given).expanduser()
    if path.is_dir():
        return path, None
    if path.exists():
        raise UserError(f"{what} is {given!r}, which is a file; give the folder that holds it")
    looks_like_path = given.startswith((".", "/", "~")) or given.count("/") != 1
    if looks_like_path:
        hint = _meant(given, what)
        raise UserError(f"no such {what}: there is no folder {given!r}{hint}")
    return find_hub_folder(given, revision, what), given


def find_hub_folder(repo: str, revision: str | None, what: str = "model") -> Path:
    """The folder of one commit, with its small files. The commit is the folder's name."""
    at = f" at revision {revision}" if revision else ""
    unanswered: Exception | None = None
    lead = f"no such {what}: {repo!r} is no local folder, nor in the cache{at}"
    with _asking(repo, lead, revision, what):
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
    if not Path(folder, CONFIGS[what]).exists():
        kind = "checkpoint" if what == "model" else what
        raise UserError(f"{repo} has no {CONFIGS[what]} on the Hub, so it is no {kind}")
    return Path(folder)


def remote_headers(
    repo: str, commit: str, names: Sequence[str]
) -> dict[str, SafetensorsFileMetadata]:
    """The headers of weight files that are not in the cache, which are their first bytes."""
    api, found = HfApi(), {}
    for name in names:
        with _asking(repo, f"{name} of {repo} is not in the cache"):
            try:
                found[name] = api.parse_safetensors_file_metadata(repo, name, revision=commit)
            except errors.RemoteEntryNotFoundError as error:
                raise UserError(
                    f"{repo} has no {name} on the Hub (weights are read from safetensors only)"
                ) from error
    return found


def fetch_weights(repo: str, folder: Path, names: Sequence[str]) -> None:
    """Fetch weight files that are not there yet. On a terminal the client shows its bars."""
    missing = [name for name in names if not (folder / name).exists()]
    if not missing:
        return
    with _asking(repo, f"run the same command again: not all weights of {repo} arrived"):
        planned = snapshot_download(
            repo, revision=folder.name, allow_patterns=missing, dry_run=True, tqdm_class=_NoBar
        )
        size, free = sum(each.file_size or 0 for each in planned), shutil.disk_usage(folder).free
        if size > free:  # said before the first byte: after hours it would help nobody
            raise UserError(
                f"the weights of {repo} need {size / 2**30:,.1f} GiB more, but "
                f"{folder.parent.parent} has room for {free / 2**30:,.1f}: "
                "set HF_HOME to a folder on a larger disk"
            )
        logger.info("fetching %d files of %s, %.1f GiB", len(missing), repo, size / 2**30)
        bars = None if sys.stderr.isatty() else _NoBar
        snapshot_download(repo, revision=folder.name, allow_patterns=missing, tqdm_class=bars)


@contextmanager
def _asking(
    repo: str, lead: str, revision: str | None = None, what: str = "model"
) -> Iterator[None]:
    """Turn errors of the Hub's client into one sentence, and silence what it logs of its attempts.

    `lead` begins the sentence where the reason alone does not say what the Hub was asked for.
    """
    verbosity = client_logging.get_verbosity()
    client_logging.set_verbosity_error()
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of the client, of what it speaks HTTP with, and of Xet
        raise UserError(_explain(error, repo, revision, lead, what)) from error
    finally:
        client_logging.set_verbosity(verbosity)


def _meant(name: str, what: str) -> str:
    return did_you_mean(name) if what == "model" else ""


def _explain(error: BaseException, repo: str, revision: str | None, lead: str, what: str) -> str:
    """What is wrong, and what to do about it."""
    if isinstance(error, errors.LocalEntryNotFoundError | errors.DryRunError) and error.__cause__:
        error = error.__cause__  # the client's own summary says less
    hub, meant = constants.ENDPOINT, _meant(repo, what)
    reason = first_line(error)
    match error:
        case errors.HFValidationError():
            return f"no such {what}: {repo!r} is neither a folder nor a Hub id{meant}"
        case errors.SafetensorsParsingError():
            return f"{repo} has damaged weights on the Hub: {reason}"
        case errors.GatedRepoError():
            return f"{repo} is gated: accept its licence on {hub}/{repo}, and {LOG_IN}"
        case errors.RevisionNotFoundError():
            return f"{repo} has no revision {revision!r} on the Hub: give a branch, tag or commit"
        case errors.RepositoryNotFoundError():
            return (
                f"no such {what}: {repo!r} is no local folder, and not on the Hub either "
                f"(if it is private, {LOG_IN}){meant}"
            )
        case errors.OfflineModeIsEnabled():
            reason = f"HF_HUB_OFFLINE forbids to ask the Hub{meant}"
        case errors.HfHubHTTPError(response=response) if response.status_code == 401:
            reason = f"the Hub does not accept your token: {LOG_IN}"
        case errors.HfHubHTTPError(response=response):
            said = error.server_message or "try again later"
            reason = f"the Hub at {hub} answers with error {response.status_code}: {said}"
        case errors.HTTPError():
            reason = f"the Hub at {hub} cannot be reached: {reason}{meant}"
            verdict, _, rest = lead.partition(": ")
            if verdict.startswith("no such"):  # which nobody knows
                return f"{reason}; {rest}"
        case AssertionError() | KeyError() | TypeError() | ValueError():  # such as a login page
            return f"what answers at {hub} is no Hub: {error}"
    return f"{lead}, and {reason}"
