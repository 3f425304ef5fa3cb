"""A server in this process, on a real port, with a script for a model: slow or faulty at will."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar

import uvicorn

from rho_eos.decoding.prediction import Prediction
from rho_eos.engine.row import Row
from rho_eos.server.config import ServerConfig
from rho_eos.server.run import listen, uvicorn_config
from rho_eos.server.service import Service
from rho_eos.text.ask import Ask, Request
from rho_eos.text.preparation import decide, samples
from tests.requests import request as request_for
from tests.scripted import SPECIAL, Script, ScriptedRunner, decode, encode, engine_of
from tests.server.clients import Web
from tests.support import wait_until

MODEL = "scripted"
CONTEXT = 4096


class ControlledRunner(ScriptedRunner):
    """A scripted runner that can be held before a forward, slowed down, or made to raise."""

    def __init__(self, script: Script, seconds: float = 0.0) -> None:
        super().__init__(script)
        self.seconds = seconds
        self.may_run = threading.Event()
        self.may_run.set()
        self.fault: Callable[[list[str]], BaseException | None] = lambda prompts: None
        self.failed: set[str] = set()  # prompts that were in a forward that raised

    def predict(self, rows: Sequence[Row]) -> list[Prediction]:
        self.may_run.wait()
        time.sleep(self.seconds)
        prompts = [decode(row.canvas.prompt.tolist()) for row in rows]
        fault = self.fault(prompts)
        predictions = super().predict(rows)
        if fault is not None:
            self.failed.update(prompts)
            raise fault
        return predictions


class BytePreparer:
    """As much of `Preparer` as a server touches; a prompt is its bytes."""

    defaults: ClassVar[dict[str, Any]] = {}

    def prepare(self, ask: Ask) -> list[Request]:
        prompt: Any = ask.prompt
        if "messages" in prompt:
            text = "\n".join(message["content"] for message in prompt["messages"])
        else:
            text = prompt
        asked = samples(ask.id, decide(ask, SPECIAL), ask.n)
        return [request_for(id, encode(text), params) for id, params in asked]


class ScriptedLLM:
    """As much of `LLM` as a server touches."""

    def __init__(self, runner: ScriptedRunner, max_rows: int = 32) -> None:
        self.engine = engine_of(runner, max_rows=max_rows)
        self.preparer = BytePreparer()
        self.config = SimpleNamespace(model=MODEL)
        self.checkpoint = SimpleNamespace(blocks=None, family=SimpleNamespace(caches=True))
        self.special = SPECIAL
        self.context_length = CONTEXT


class Scripted:
    """A running server and the strings to pull."""

    def __init__(self, runner: ControlledRunner, service: Service, url: str) -> None:
        self.runner = runner
        self.service = service
        self.url = url
        self.http = Web(url)
        self.chat = self.http.chat

    def metric(self, name: str) -> float:
        lines = self.http.get("/metrics").text.splitlines()
        found = [line.rsplit(" ", 1)[1] for line in lines if line.startswith(name + " ")]
        return float(found[0]) if found else 0.0

    def wait_for_requests(self, count: int, seconds: float = 30) -> None:
        """Until so many have arrived, whether they run or wait."""
        names = ("rho_eos_requests_running", "rho_eos_requests_waiting")
        wait_until(lambda: sum(map(self.metric, names)) == count, seconds, f"{count} requests")

    def wait_for_metric(self, name: str, value: float, seconds: float = 30) -> None:
        wait_until(lambda: self.metric(name) == value, seconds, f"{name} is {value}")


def chat_body(content: str = "?", **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], **fields}


@contextmanager
def serving(
    runner: ControlledRunner, max_rows: int = 32, llm: Any = None, **config: Any
) -> Iterator[Scripted]:
    """Start a server around `runner`, or around a real model, and end it in an orderly way."""
    settings = ServerConfig(**{"drain_seconds": 5.0, **config})
    service = Service(llm or ScriptedLLM(runner, max_rows), settings)
    server = uvicorn.Server(uvicorn_config(service))
    listener = listen("127.0.0.1", 0)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        yield Scripted(runner, service, f"http://127.0.0.1:{listener.getsockname()[1]}")
    finally:
        runner.may_run.set()
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive(), "the server did not end"
