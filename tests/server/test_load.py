"""Requests made to keep a server busy: how long honest ones wait, as a ratio to a quiet server."""

import time
from collections.abc import Callable
from typing import Any

import httpx
import psutil
import pytest

from tests.server.clients import Web, hammering
from tests.server.conftest import Process

#: Below this a wait is the machine's own noise.
NOISE = 0.025
MOST = 25.0  # times as long


def chat(content: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], **fields}


SMALL: dict[str, Any] = {"max_tokens": 8, "policy": "fixed", "commit": "quota", "steps": 2}


def median(work: Callable[[], httpx.Response], count: int = 7) -> float:
    took = []
    for _ in range(count):
        started = time.perf_counter()
        assert work().status_code == 200
        took.append(time.perf_counter() - started)
    return sorted(took)[count // 2]


HUGE_PROMPT = chat("a b " * 250_000)
CHAT, TEXT = "chat/completions", "completions"
#: To where, what, how it is answered, and from how many clients at once.
ATTACKS: dict[str, tuple[str, dict[str, Any], int, int]] = {
    "stop": (CHAT, chat("x", stop="x" * 300_000, max_tokens=400, initial_length=200), 400, 4),
    "stops": (CHAT, chat("x", stop=["x" * 1024] * 16, stream=True, max_tokens=200), 200, 2),
    "prompt": (CHAT, HUGE_PROMPT, 400, 8),
    "messages": (CHAT, {"messages": chat("")["messages"] * 25_000}, 400, 4),
    "no messages": (CHAT, {"messages": [{}] * 200_000}, 400, 4),
    "fields": (CHAT, chat("x") | {f"field{number}": 0 for number in range(60_000)}, 400, 4),
    "ids": (TEXT, {"prompt": [1] * 300_000}, 400, 4),
    "no ids": (TEXT, {"prompt": [{}] * 200_000}, 400, 4),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_others_do_not_wait_for_it(server: Process, name: str) -> None:
    path, body, status, clients = ATTACKS[name]
    request = httpx.Request("POST", f"{server.url}/v1/{path}", json=body)
    seen: set[int] = set()

    def attack() -> None:
        with Web(server.url) as client:
            seen.add(client.send(request).status_code)

    def measured() -> tuple[float, float]:
        with Web(server.url) as web:
            return median(lambda: web.get("/health")), median(lambda: web.chat(**SMALL))

    quiet = measured()
    with hammering(clients, attack):
        loaded = measured()
    assert seen == {status}
    for what, with_, without in zip(("/health", "a request"), loaded, quiet, strict=True):
        ratio = with_ / max(without, NOISE)
        assert ratio < MOST, f"{what} took {with_:.3f} s, {ratio:.0f} times as long as before"


def test_memory_does_not_stay_behind(server: Process, web: Web) -> None:
    """Eight prompts of a megabyte that were refused anyway left 3 GB."""
    process = psutil.Process(server.popen.pid)
    web.chat(**SMALL)
    before = process.memory_info().rss
    for _ in range(8):
        assert web.post("/v1/chat/completions", json=HUGE_PROMPT).status_code == 400
    assert process.memory_info().rss - before < 200 * 2**20
