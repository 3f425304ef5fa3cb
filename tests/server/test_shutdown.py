"""A real process and real signals."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from rho_eos import LLM, DecodeParams
from tests import forks
from tests.server.conftest import MODEL, Process, start_server

LONG = {"initial_length": 64, "max_tokens": 160, "threshold": 1.0, "block_length": 32}


@pytest.fixture
def fresh(byte_checkpoint: Path, tmp_path: Path) -> Process:
    options = ("--drain-seconds", "300", "--log-level", "debug")
    return start_server(byte_checkpoint, tmp_path / "log", *options)


def ask(server: Process, text: str) -> httpx.Response:
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}], **LONG}
    url = f"{server.url}/v1/chat/completions"
    return httpx.post(url, json=body, timeout=400, trust_env=False)


def in_flight(server: Process) -> float:
    lines = httpx.get(f"{server.url}/metrics", timeout=60, trust_env=False).text.splitlines()
    gauges = ("rho_eos_requests_running ", "rho_eos_requests_waiting ")
    return sum(float(line.split()[1]) for line in lines if line.startswith(gauges))


def test_sigterm_under_load_loses_nothing_that_was_accepted(fresh: Process, llm: LLM) -> None:
    prompts = [f"question {number}" for number in range(12)]
    with ThreadPoolExecutor(len(prompts)) as pool:
        answers = [pool.submit(ask, fresh, prompt) for prompt in prompts]
        while in_flight(fresh) < len(prompts):
            assert not any(answer.done() for answer in answers), "the requests are too short"
            time.sleep(0.02)
        fresh.popen.send_signal(signal.SIGTERM)
        texts = [answer.result().json()["choices"][0]["message"]["content"] for answer in answers]
    assert fresh.popen.wait(60) == 0, fresh.log.read_text()
    assert "GET /ready 200" in fresh.log.read_text()  # which only the level debug shows
    params = {("max_new_tokens" if k == "max_tokens" else k): v for k, v in LONG.items()}
    wants = llm.generate(prompts, DecodeParams(**params))
    assert texts == [want.text for want in wants]
    with pytest.raises(httpx.ConnectError):
        ask(fresh, "late")


def test_bad_options_are_one_line_and_exit_code_2(tmp_path: Path) -> None:
    for options, named in (
        (["--port", "70000"], "port"),
        (["--api-key-file", str(tmp_path / "none")], "api_key_file"),
        (["--model", str(tmp_path / "no-model")], "no-model"),
        (["--deadline-seconds", "soon"], "deadline_seconds"),
    ):
        done = forks.run("-m", "rho_eos", "serve", *options)
        assert done.returncode == 2
        assert named in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_a_port_that_is_taken_is_one_line_and_exit_code_2(
    server: Process, byte_checkpoint: Path
) -> None:
    port = str(httpx.URL(server.url).port)
    done = forks.run("-m", "rho_eos", "serve", "--model", byte_checkpoint, "--port", port)
    assert done.returncode == 2
    assert f"port {port}" in done.stderr and "Traceback" not in done.stderr
