"""Requests made to keep a server busy: how long honest ones wait, as a ratio to a quiet server."""

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.server.clients import hammering
from tests.server.conftest import MODEL, Process

#: Below this a wait is the machine's own noise.
NOISE = 0.025
MOST = 25.0  # times as long


def chat(content: str, **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], **fields}


SMALL = chat("hi", max_tokens=8, policy="fixed", commit="quota", steps=2)


def ask(server: Process, body: dict[str, Any], timeout: float = 120) -> httpx.Response:
    url = f"{server.url}/v1/chat/completions"
    return httpx.post(url, json=body, timeout=timeout, trust_env=False)


def median(work: Callable[[], object], count: int = 7) -> float:
    took = []
    for _ in range(count):
        started = time.perf_counter()
        work()
        took.append(time.perf_counter() - started)
    return sorted(took)[count // 2]


def health(server: Process) -> None:
    assert httpx.get(f"{server.url}/health", timeout=120, trust_env=False).status_code == 200


def small(server: Process) -> None:
    assert ask(server, SMALL).status_code == 200


LONG_STOP = chat("x", stream=True, stop="x" * 300_000, max_tokens=400, initial_length=200)
MANY_STOPS = chat("x", stop=["x" * 1024 for _ in range(16)], stream=True, max_tokens=200)
HUGE_PROMPT = chat("a b " * 250_000)
MANY_MESSAGES = {
    "model": MODEL,
    "messages": [{"role": "user", "content": ""} for _ in range(25_000)],
}
NO_MESSAGES = {"model": MODEL, "messages": [{}] * 200_000}
MANY_FIELDS = chat("x") | {f"field{number}": 0 for number in range(60_000)}
MANY_IDS = {"model": MODEL, "prompt": [1] * 300_000}
NO_IDS = {"model": MODEL, "prompt": [{}] * 200_000}


@pytest.mark.parametrize(
    ("path", "body", "status", "clients"),
    [
        ("chat/completions", LONG_STOP, 400, 4),
        ("chat/completions", MANY_STOPS, 200, 2),
        ("chat/completions", HUGE_PROMPT, 400, 8),
        ("chat/completions", MANY_MESSAGES, 400, 4),
        ("chat/completions", NO_MESSAGES, 400, 4),
        ("chat/completions", MANY_FIELDS, 400, 4),
        ("completions", MANY_IDS, 400, 4),
        ("completions", NO_IDS, 400, 4),
    ],
    ids=["stop", "stops", "prompt", "messages", "no messages", "fields", "ids", "no ids"],
)
def test_others_do_not_wait_for_it(
    server: Process, path: str, body: dict[str, Any], status: int, clients: int
) -> None:
    request = httpx.Request("POST", f"{server.url}/v1/{path}", json=body)
    seen: set[int] = set()

    def attack() -> None:
        with httpx.Client(timeout=120, trust_env=False) as client:
            seen.add(client.send(request).status_code)

    quiet = median(lambda: health(server)), median(lambda: small(server))
    with hammering(clients, attack):
        loaded = median(lambda: health(server)), median(lambda: small(server))
    assert seen == {status}
    for name, with_, without in zip(("/health", "a request"), loaded, quiet, strict=True):
        ratio = with_ / max(without, NOISE)
        assert ratio < MOST, f"{name} took {with_:.3f} s, {ratio:.0f} times as long as before"


def test_memory_does_not_stay_behind(server: Process) -> None:
    """Eight prompts of a megabyte that were refused anyway left 3 GB."""
    import psutil

    process = psutil.Process(server.popen.pid)
    ask(server, SMALL)
    before = process.memory_info().rss
    for _ in range(8):
        assert ask(server, HUGE_PROMPT).status_code == 400
    assert process.memory_info().rss - before < 200 * 2**20
