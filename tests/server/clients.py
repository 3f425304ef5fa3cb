"""What clients of a server do in several tests: read a stream, attack without rest."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx


def events(text: str) -> list[Any]:
    """The events of a finished stream; the end mark as it is."""
    lines = [line.removeprefix("data: ") for line in text.strip().split("\n\n")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


@contextmanager
def hammering(count: int, attack: Callable[[], object]) -> Iterator[None]:
    """So many threads that attack again and again."""
    stopping = threading.Event()

    def go_on() -> None:
        while not stopping.is_set():
            with suppress(OSError, httpx.HTTPError):
                attack()

    threads = [threading.Thread(target=go_on, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(0.3)
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join(60)
