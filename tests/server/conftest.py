"""Two kinds of server: a real `rho-eos serve` process, and one in this process with a script."""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from rho_eos import LLM
from tests.checkpoints import write_checkpoint
from tests.forks import Fork
from tests.server.clients import Web
from tests.server.plugin import PLUGIN

MODEL = "random"


@dataclass
class Process:
    """A server process, its address and its log."""

    popen: Fork
    url: str
    log: Path

    @cached_property
    def web(self) -> Web:
        return Web(self.url)

    @property
    def axes(self) -> dict[str, Any]:
        """What the server says of its policies, commit rules and caches."""
        return self.web.get("/v1/rho_eos/schema").json()["axes"]

    def end(self) -> None:
        """It takes its leave in an orderly way."""
        self.popen.terminate()
        assert self.popen.wait(120) == 0, self.log.read_text()

    def client(self, key: str = "unused") -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0)


def start_server(
    folder: Path, log: Path, *options: str, env: dict[str, str] | None = None
) -> Process:
    """`rho-eos serve` on a free port; returns once it listens."""
    named = ["--served-model-name", MODEL, "--port", "0", *options]
    with log.open("w") as file:
        popen = Fork("-m", "rho_eos", "serve", folder, *named, stderr=file.fileno(), env=env)
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        found = re.search(r"serving .* at (http://\S+)", log.read_text())
        if found and _answers(found[1]):
            return Process(popen, found[1], log)
        if popen.poll() is not None:
            raise AssertionError(f"the server ended at once: {log.read_text()}")
        time.sleep(0.1)
    popen.kill()
    raise AssertionError(f"the server did not start: {log.read_text()}")


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ready", timeout=30, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture(scope="session")
def server(byte_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    log = tmp_path_factory.mktemp("server") / "log"
    process = start_server(byte_checkpoint, log)
    yield process
    process.end()


@pytest.fixture(scope="session")
def block_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a block diffusion model, with blocks of 16."""
    return write_checkpoint(tmp_path_factory.mktemp("byte-blocks"), block_length=16)


@pytest.fixture(scope="session")
def block_llm(block_checkpoint: Path) -> LLM:
    return LLM(str(block_checkpoint))


@pytest.fixture(scope="session")
def block_server(
    block_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Process]:
    process = start_server(block_checkpoint, tmp_path_factory.mktemp("block-server") / "log")
    yield process
    process.end()


EXAMPLE = Path(__file__).parents[2] / "examples" / "policy.py"


@pytest.fixture(scope="session")
def plugin_server(
    byte_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Process]:
    """A server that was started with a file of somebody else's policies."""
    folder = tmp_path_factory.mktemp("plugin")
    plugin = folder / "doubter.py"
    plugin.write_text(PLUGIN)
    both = ("--plugin", str(plugin), "--plugin", str(EXAMPLE))
    process = start_server(byte_checkpoint, folder / "log", *both)
    yield process
    process.end()


@pytest.fixture(scope="session")
def web(server: Process) -> Web:
    return server.web


@pytest.fixture(scope="session")
def client(server: Process) -> openai.OpenAI:
    return server.client()
