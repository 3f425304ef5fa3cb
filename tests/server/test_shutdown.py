"""A real process and real signals."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from rho_eos import LLM, DecodeParams
from tests import forks
from tests.server.clients import Web, text_of
from tests.server.conftest import Process, start_server

LONG: dict[str, Any] = {"initial_length": 64, "threshold": 1.0, "block_length": 32}


def test_sigterm_under_load_loses_nothing_that_was_accepted(
    byte_checkpoint: Path, tmp_path: Path, llm: LLM
) -> None:
    options = ("--drain-seconds", "300", "--log-level", "debug")
    fresh = start_server(byte_checkpoint, tmp_path / "log", *options)
    prompts = [f"question {number}" for number in range(12)]
    gauges = ("rho_eos_requests_running ", "rho_eos_requests_waiting ")

    def in_flight() -> float:
        lines = fresh.web.get("/metrics").text.splitlines()
        return sum(float(line.split()[1]) for line in lines if line.startswith(gauges))

    with ThreadPoolExecutor(len(prompts)) as pool:
        answers = [
            pool.submit(Web(fresh.url, 400).chat, prompt, max_tokens=160, **LONG)
            for prompt in prompts
        ]
        while in_flight() < len(prompts):
            assert not any(answer.done() for answer in answers), "the requests are too short"
            time.sleep(0.02)
        fresh.popen.send_signal(signal.SIGTERM)
        texts = [text_of(answer.result()) for answer in answers]
    assert fresh.popen.wait(60) == 0, fresh.log.read_text()
    assert "GET /ready 200" in fresh.log.read_text()  # which only the level debug shows
    wants = llm.generate(prompts, DecodeParams(max_new_tokens=160, **LONG))
    assert texts == [want.text for want in wants]
    with pytest.raises(httpx.ConnectError):
        Web(fresh.url).chat("late")


DYING = """
from rho_eos.decoding.policies.fixed import Fixed
from rho_eos import register_policy

@register_policy
class Dying(Fixed):
    name = "dying"
    def step(self, *arguments):
        raise SystemExit("it ends whatever it runs in")
"""


def test_a_server_whose_worker_died_ends_with_an_error(
    byte_checkpoint: Path, tmp_path: Path
) -> None:
    """So that whatever watches over it starts another."""
    (tmp_path / "dying.py").write_text(DYING)
    plugin = ("--plugin", str(tmp_path / "dying.py"))
    fresh = start_server(byte_checkpoint, tmp_path / "log", *plugin)
    assert fresh.web.chat("hello").status_code == 200
    assert fresh.web.chat("hello", policy="dying").status_code == 503
    assert fresh.popen.wait(60) == 1
    assert "rho-eos: the engine's worker died" in fresh.log.read_text()


def test_bad_options_are_one_line_and_exit_code_2(server: Process, tmp_path: Path) -> None:
    port = str(httpx.URL(server.url).port)
    for options, named in (
        (["--port", "70000"], "port"),
        (["--api-key-file", str(tmp_path / "none")], "api_key_file"),
        (["--model", str(tmp_path / "no-model")], "no-model"),
        (["--deadline-seconds", "soon"], "deadline_seconds"),
        (["--model", "tiny", "--port", port], f"port {port}"),
    ):
        done = forks.run("-m", "rho_eos", "serve", *options)
        assert done.returncode == 2 and "Traceback" not in done.stderr
        assert named in done.stderr.strip().splitlines()[-1]
