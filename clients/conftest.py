"""A real server on a real port, for clients that know nothing of it but its address."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before a client is imported: it must not look for its makers' servers, nor for a proxy.
os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1"}

#: A problem that the embedded model solves, and its answer: 8 + 6 - 5.
PROBLEM = "Mia has 8 plums. 1) buys 6. 2) eats 5. How many are there now?"
ANSWER = "9"


def is_right(text: str) -> bool:
    """The last number of an answer is what it says."""
    return re.findall(r"\d+", text)[-1:] == [ANSWER]


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`RHO_EOS_PYTHON` names the interpreter in whose environment rho-eos is."""
    log = tmp_path_factory.mktemp("server") / "log"
    command = [os.environ["RHO_EOS_PYTHON"], "-m", "rho_eos", "serve", "tiny", "--port", "0"]
    with log.open("w") as file:
        server = subprocess.Popen(command, stderr=file)
    try:
        yield _address(server, log) + "/v1"
    finally:
        server.terminate()
        assert server.wait(60) == 0, log.read_text()


def _address(server: "subprocess.Popen[bytes]", log: Path) -> str:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and server.poll() is None:
        found = re.search(r"serving .* at (http://\S+)", log.read_text())
        if found:
            return found[1]
        time.sleep(0.1)
    raise AssertionError(f"the server did not start: {log.read_text()}")
