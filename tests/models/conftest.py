"""A local Hub with one model, and commands run against it in this process."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

import rho_eos.models.auto  # noqa: F401  registers the families
from tests.checkpoints import write_checkpoint
from tests.evals.command import Command, Result, Run
from tests.hub import Hub, Repo, serve_hub

MODEL = "someone/byte-llada"
GENERATE = ("generate", "hello", "--max-new-tokens", "8", "--initial-length", "8", "--model")


def refused(run: Run, *words: str) -> str:
    """What a command says that ends, soon, with one line and exit code 2."""
    started = time.monotonic()
    ran = run(*words)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), ran
    assert ran.err.startswith("rho-eos: ") and time.monotonic() - started < 60
    return ran.err


def without_placement(err: str) -> str:
    """What a command said beside the line on where its model runs."""
    lines = err.splitlines(keepends=True)
    return "".join(line for line in lines if not re.match(r"rho-eos: .*; needs [\d.]+ .B", line))


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights that are large beside their headers, in several files."""
    folder = tmp_path_factory.mktemp("sharded")
    return write_checkpoint(folder, width=256, shard_size="1200KB")


@pytest.fixture
def hub(sharded: Path) -> Iterator[Hub]:
    with serve_hub({MODEL: Repo.of(sharded)}) as hub:
        yield hub


@pytest.fixture
def cache(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process's client asks the local Hub and has a cache of its own."""
    folder = tmp_path / "home" / "hub"
    template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "home" / "token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    # What is lost of a cut connection is less than a piece; the client's own has 10 MB.
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 100_000)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    return folder


@pytest.fixture
def run(cache: Path, command: Command) -> Run:
    def run(*words: str) -> Result:
        ran = command(*words)
        return ran._replace(err=without_placement(ran.err))

    return run
