"""The same server on a local Ray cluster: two replicas, one of which is killed under load."""

import importlib.util
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from rho_eos import LLM, DecodeParams
from tests.server.clients import Web, deltas, text_of
from tests.server.conftest import MODEL, Process, start_server
from tests.support import require, wait_until

AFTER = 7.0  # seconds of load after the kill: Ray notices it within three checks of 2 s each


@pytest.fixture(scope="module")
def cluster(byte_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    require(importlib.util.find_spec("ray") is not None, "ray is not installed")
    log = tmp_path_factory.mktemp("ray") / "log"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "RHO_EOS_API_KEY": "a-key"}
    process = start_server(byte_checkpoint, log, "--ray", "--replicas", "2", env=environment)
    process.web.headers["Authorization"] = "Bearer a-key"
    yield process
    process.end()
    assert not _replicas(process)


def _replicas(process: Process) -> list[psutil.Process]:
    if process.popen.poll() is not None:
        return []
    below = psutil.Process(process.popen.pid).children(recursive=True)
    return [child for child in below if "ServeReplica" in " ".join(child.cmdline()[:1])]


SHORT: dict[str, Any] = {"initial_length": 16, "max_tokens": 48}


def test_the_same_endpoints_and_streams(cluster: Process, llm: LLM) -> None:
    want = llm.generate(["hello"], DecodeParams(initial_length=16, max_new_tokens=48))[0]
    assert [model.id for model in cluster.client("a-key").models.list()] == [MODEL]
    assert text_of(cluster.web.chat(**SHORT)) == want.text
    sent = deltas(cluster.web.chat(**SHORT, stream=True))
    assert "".join(sent) == want.text
    assert len(sent) > 2, "the stream came in one piece"
    assert Web(cluster.url).get("/v1/models").status_code == 401
    assert cluster.web.chat("x" * 1000).status_code == 400


def _by_replica(cluster: Process) -> dict[str, dict[str, float]]:
    """Every sample of `/metrics`, by replica and name."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(cluster.web.get("/metrics").text):
        for sample in family.samples:
            found.setdefault(sample.labels["replica"], {})[sample.name] = sample.value
    return found


def test_metrics_cover_all_replicas(cluster: Process) -> None:
    """Whoever is asked tells of all: what was generated is counted once, wherever that was."""

    def total() -> float:
        return sum(each["rho_eos_generated_tokens_total"] for each in _by_replica(cluster).values())

    before, tokens = total(), 0
    for number in range(6):
        answer = cluster.web.chat(f"metric {number}", **SHORT)
        tokens += answer.json()["usage"]["completion_tokens"]
    answers = [_by_replica(cluster) for _ in range(4)]  # the proxy asks one or the other
    assert [len(each) for each in answers] == [2] * 4
    assert total() - before == tokens > 0
    assert all(each["rho_eos_requests_running"] == 0 for each in answers[-1].values())


def test_a_killed_replica_costs_no_later_request(cluster: Process, llm: LLM) -> None:
    prompts = [f"question {number}" for number in range(6)]
    outputs = llm.generate(prompts, DecodeParams(initial_length=16, max_new_tokens=48))
    wants = {prompt: output.text for prompt, output in zip(prompts, outputs, strict=True)}
    killed, done = threading.Event(), threading.Event()
    later: list[tuple[str, httpx.Response]] = []

    def load(prompt: str) -> None:
        while not done.is_set():
            is_later = killed.is_set()
            answer = cluster.web.chat(prompt, **SHORT)
            if is_later:
                later.append((prompt, answer))

    clients = [threading.Thread(target=load, args=(prompt,)) for prompt in prompts]
    for client in clients:
        client.start()
    before = _replicas(cluster)
    assert len(before) == 2
    time.sleep(1)
    os.kill(before[0].pid, signal.SIGKILL)
    killed.set()
    time.sleep(AFTER)
    done.set()
    for client in clients:
        client.join()
    assert len(later) > len(prompts)
    assert all(text_of(answer) == wants[prompt] for prompt, answer in later)

    wait_until(lambda: len(_replicas(cluster)) == 2, 180, "Ray starts another replica")
