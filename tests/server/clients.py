"""What clients of a server do in several tests: ask, read a stream, attack without rest."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx


class Web(httpx.Client):
    """Sends what a test says and nothing else."""

    def __init__(self, url: str, timeout: float = 120) -> None:
        super().__init__(base_url=url, timeout=timeout, trust_env=False)

    def chat(self, content: Any = "hello", **fields: Any) -> httpx.Response:
        body = {"messages": [{"role": "user", "content": content}], **fields}
        return self.post("/v1/chat/completions", json=body)

    def complete(self, **fields: Any) -> httpx.Response:
        return self.post("/v1/completions", json=fields)

    def steps(self, **fields: Any) -> tuple[Any, list[Any], Any]:
        """How a generation starts, all its steps, and how it ends."""
        told = self.chat(stream=True, stream_mode="denoise", **fields)
        assert told.status_code == 200, told.text
        start, *steps, done, end = events(told.text)
        assert (start["object"], done["object"]) == ("rho_eos.start", "rho_eos.done")
        assert end == "[DONE]"
        return start, steps, done


def connect(url: str) -> socket.socket:
    """A connection on which a test sends bytes of its own."""
    return socket.create_connection(("127.0.0.1", httpx.URL(url).port), 30)


def text_of(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    [choice] = answer.json()["choices"]
    return str(choice["message"]["content"] if "message" in choice else choice["text"])


def error_of(answer: httpx.Response, status: int = 400) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def deltas(stream: httpx.Response) -> list[str]:
    """The texts of a finished stream of one choice, those that hold any."""
    *chunks, end = events(stream.text)
    assert end == "[DONE]", stream.text
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    texts = [each["delta"].get("content") if "delta" in each else each["text"] for each in choices]
    return [text for text in texts if text]


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
