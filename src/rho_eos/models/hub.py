"""Models on the Hub: which commit is meant, its small files, and what its weights are like.

Weights are many gigabytes, so opening a model fetches only what describes it: JSON and text files,
and of each weight file the header. `rho_eos.models.download` fetches the rest when a model is
loaded. What is in the local cache is used where the Hub cannot be asked.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeVar

from huggingface_hub import (
    HfApi,
    constants,
    get_hf_file_metadata,
    hf_hub_download,
    hf_hub_url,
    try_to_load_from_cache,
)
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    SafetensorsParsingError,
)
from huggingface_hub.utils import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
)
from huggingface_hub.utils import logging as hub_logging

from rho_eos.base.errors import UserError
from rho_eos.models.known import did_you_mean

#: What describes a model. No pickles and no code, ever.
SMALL_FILES = ("*.json", "*.txt", "*.model", "*.jinja")
ANSWER_SECONDS = 10.0
LOG_IN = "log in with `hf auth login` or set HF_TOKEN"
#: All that the client raises for what goes wrong between it and a Hub.
HUB_ERRORS = (HTTPError, HFValidationError, EntryNotFoundError, OSError)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HubFile:
    size: int
    etag: str  # names the content; of a large file it is the sha256
    large: bool


@dataclass(frozen=True, slots=True)
class HubModel:
    """One commit of a Hub repository. Its folder in the cache holds the small files."""

    repo: str
    folder: Path
    files: Mapping[str, HubFile] = field(default_factory=dict)
    unanswered: str | None = None  # why the Hub could not be asked, if so

    @property
    def commit(self) -> str:
        return self.folder.name

    def file(self, name: str) -> HubFile:
        if self.unanswered is not None:
            raise UserError(f"{name} of {self.repo} is not in the cache, and {self.unanswered}")
        if name not in self.files:
            raise UserError(
                f"{self.repo} has no {name} on the Hub (weights are read from safetensors only)"
            )
        return self.files[name]


def find_hub_model(repo: str, revision: str | None) -> HubModel:
    """The model's small files, fetched or found in the cache."""
    name = revision or constants.DEFAULT_REVISION
    try:
        with quiet_client():
            return _ask_hub(repo, name)
    except (RevisionNotFoundError, HFValidationError) as error:
        raise UserError(explain(error, repo, revision)) from error
    except HUB_ERRORS as error:
        sentence = explain(error, repo, revision)
        cached = try_to_load_from_cache(repo, "config.json", revision=name)
        if not isinstance(cached, str):
            raise UserError(sentence) from error
        return HubModel(repo, Path(cached).parent, unanswered=reason(error))
    except (KeyError, TypeError, ValueError) as error:  # a login page of a network, for example
        raise UserError(f"what answers at {constants.ENDPOINT} is no Hub: {error}") from error


def _ask_hub(repo: str, revision: str) -> HubModel:
    info = HfApi().model_info(repo, revision=revision, files_metadata=True, timeout=ANSWER_SECONDS)
    files = {
        each.rfilename: HubFile(
            size=(each.lfs.size if each.lfs else each.size) or 0,
            etag=(each.lfs.sha256 if each.lfs else each.blob_id) or "",
            large=each.lfs is not None,
        )
        for each in info.siblings or ()
    }
    if "config.json" not in files:
        raise UserError(f"{repo} has no config.json on the Hub, so it is no checkpoint")
    commit = str(info.sha)
    for name in files:
        small = "/" not in name and any(fnmatch(name, pattern) for pattern in SMALL_FILES)
        if small and name != "config.json":
            fetch_file(repo, name, commit)
    # Last, so that a cache with a config has the other files as well; and by the name that was
    # given, so that the cache remembers which commit it means.
    config = fetch_file(repo, "config.json", revision)
    if config.parent.name != commit:
        return _ask_hub(repo, revision)  # somebody pushed meanwhile
    return HubModel(repo, config.parent, files)


def fetch_file(repo: str, name: str, revision: str) -> Path:
    """A file from the cache or the Hub. One that does not answer is asked once.

    The client would go on asking for minutes, so it is given only what answers.
    """
    if not isinstance(try_to_load_from_cache(repo, name, revision=revision), str):
        get_hf_file_metadata(hf_hub_url(repo, name, revision=revision), timeout=ANSWER_SECONDS)
    return Path(hf_hub_download(repo, name, revision=revision))


def remote_header(model: HubModel, name: str) -> tuple[Counter[str], int]:
    """Parameters by dtype, and bytes, of a weight file that is not here, from its first bytes."""
    size = model.file(name).size
    header = ask(
        model.repo,
        lambda: HfApi().parse_safetensors_file_metadata(model.repo, name, revision=model.commit),
        f"cannot read what {name} of {model.repo} holds",
    )
    return Counter({str(kind): count for kind, count in header.parameter_count.items()}), size


def checksums(files: tuple[Path, ...], model: HubModel | None) -> dict[str, str] | None:
    """What the Hub calls the content of weight files, the same before and after they are fetched.

    None for files that did not come from a Hub.
    """
    found: dict[str, str] = {}
    for file in files:
        if file.is_symlink() and file.readlink().parent.name == "blobs":
            found[file.name] = file.readlink().name
        elif model is not None and file.name in model.files and not file.exists():
            found[file.name] = model.files[file.name].etag
        else:
            return None
    return found


def ask(repo: str, question: Callable[[], T], lead: str) -> T:
    """Have the client ask; what goes wrong is said in one sentence that begins with `lead`.

    A connection that was kept open may have been closed at the other end meanwhile: then it is
    asked once more, on a new one.
    """
    try:
        with quiet_client():
            try:
                return question()
            except HTTPError as error:
                # By name: versions of the client take this class from different libraries.
                if type(error).__name__ != "RemoteProtocolError":
                    raise
                return question()
    except SafetensorsParsingError as error:
        raise UserError(f"{repo} has damaged weights on the Hub: {first_line(error)}") from error
    except HUB_ERRORS as error:
        raise UserError(explain(error, repo, None, lead)) from error


@contextmanager
def quiet_client(bars: bool = False) -> Iterator[None]:
    """Retries are not worth a line: what fails in the end is said once, by us."""
    verbosity, had_bars = hub_logging.get_verbosity(), not are_progress_bars_disabled()
    hub_logging.set_verbosity_error()
    if had_bars and not bars and constants.HF_HUB_DISABLE_PROGRESS_BARS is None:
        disable_progress_bars()
    try:
        yield
    finally:
        hub_logging.set_verbosity(verbosity)
        if had_bars and constants.HF_HUB_DISABLE_PROGRESS_BARS is None:
            enable_progress_bars()


def explain(error: BaseException, repo: str, revision: str | None, lead: str | None = None) -> str:
    """One sentence: what is wrong and what to do about it. `lead` says what it was asked for."""
    page = f"{constants.ENDPOINT}/{repo}"
    if isinstance(error, HFValidationError):
        return f"no such model: {repo!r} is neither a folder nor a Hub id{did_you_mean(repo)}"
    if isinstance(error, GatedRepoError):
        return f"{repo} is gated: accept its licence on {page}, and {LOG_IN}"
    if isinstance(error, RevisionNotFoundError):
        return f"{repo} has no revision {revision!r} on the Hub: give a branch, a tag or a commit"
    if isinstance(error, RepositoryNotFoundError):
        return (
            f"no such model: {repo!r} is no local folder, and not on the Hub either "
            f"(if it is private, {LOG_IN}){did_you_mean(repo)}"
        )
    if lead is not None:
        return f"{lead}: {reason(error)}"
    at = f" at revision {revision}" if revision else ""
    return (
        f"no such model: {repo!r} is no local folder, nor in the cache{at}, and {reason(error)}"
        f"{did_you_mean(repo)}"
    )


def reason(error: BaseException) -> str:
    """Why a Hub could not be asked, as part of a sentence."""
    if isinstance(error, EntryNotFoundError) and isinstance(error.__cause__, HUB_ERRORS):
        error = error.__cause__  # the client's own summary says less
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE forbids to ask the Hub"
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        if status == 401:
            return f"the Hub does not accept your token: {LOG_IN}"
        if status == 403:
            return f"the Hub forbids it (403): {error.server_message or 'no reason given'}"
        if status == 429:
            return "the Hub says that it was asked too often (429): wait, or log in"
        return f"the Hub at {constants.ENDPOINT} answers with error {status}: try again later"
    if isinstance(error, HTTPError):
        return f"the Hub at {constants.ENDPOINT} cannot be reached: {first_line(error)}"
    return first_line(error)


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
