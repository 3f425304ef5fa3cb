"""What a client can do to a connection, with raw sockets: the others must not notice."""

import asyncio
import json
import resource
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from rho_eos.server.app import create_app
from rho_eos.server.config import ServerConfig
from rho_eos.server.service import Service
from tests.scripted import says
from tests.server.clients import connect, error_of
from tests.server.conftest import Process, start_server
from tests.server.scripted_server import (
    ControlledRunner,
    Scripted,
    ScriptedLLM,
    chat_body,
    serving,
)
from tests.support import wait_until

POST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
)

JSON = {"Content-Type": "application/json"}


def all_of(link: socket.socket) -> bytes:
    """Everything until the other side ends; a reset after an answer is an end as well."""
    parts = []
    with suppress(ConnectionResetError):
        while part := link.recv(65536):
            parts.append(part)
    return b"".join(parts)


@pytest.fixture(scope="module")
def open_server() -> Iterator[Scripted]:
    with serving(ControlledRunner(says("ok"))) as server:
        yield server


@pytest.mark.parametrize("method", [b"POST /v1/chat/completions", b"GET /health"])
@pytest.mark.parametrize("coding", [b"chunked", b"Chunked", b"identity", b"gzip, chunked"])
def test_two_lengths_of_one_body_are_refused(
    open_server: Scripted, coding: bytes, method: bytes
) -> None:
    """A proxy that believes the other one would see another request in it."""
    head = method + POST[POST.index(b" HTTP") :]
    head += b"Content-Length: 4\r\nTransfer-Encoding: " + coding + b"\r\n\r\n"
    smuggled = b"0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with connect(open_server.url) as link:
        link.sendall(head + smuggled)
        answer = all_of(link)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1 and b"rho_eos_" not in answer


def test_a_body_in_chunks_is_taken(open_server: Scripted) -> None:
    """The brackets in it are text: they do not count as lists."""
    body = json.dumps(chat_body("[{" * 30_000)).encode()
    chunks = (body[at : at + 100] for at in range(0, len(body), 100))
    answer = open_server.http.post("/v1/chat/completions", content=chunks, headers=JSON)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("item", ["[]", "{}", '{"role": "user", "content": []}', "[[[[[[[]]]]]]]"])
def test_a_body_of_very_many_lists_is_not_even_read(open_server: Scripted, item: str) -> None:
    count = 1_000_000 // (len(item) + 1)
    body = '{"messages": [' + ",".join([item] * count) + "]}"
    answer = open_server.http.post("/v1/chat/completions", content=body, headers=JSON)
    crowded = "more than 104857 lists and objects" in error_of(answer)["message"]
    assert crowded == (body.count("[") + body.count("{") > 104857)


@pytest.mark.parametrize("path", [b"POST /v1/chat/completions", b"GET /metrics", b"GET /health"])
def test_what_needs_no_body_is_answered_before_it_is_sent(path: bytes) -> None:
    with serving(ControlledRunner(says("ok")), api_key=("secret",)) as locked:
        with connect(locked.url) as link:
            head = path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n"
            link.sendall(head + b"x" * 1000)
            answer = link.recv(65536)
        assert answer.startswith(b"HTTP/1.1 200" if b"health" in path else b"HTTP/1.1 401")
        # Were the connection closed at once, it would be reset before the 401 is read.
        answered = locked.http.post("/v1/chat/completions", content=b"x" * 8_000_000)
        assert answered.status_code == 401


def test_a_stream_that_nobody_reads_ends_at_the_deadline_and_is_counted() -> None:
    """The app itself is asked: behind a socket, the kernel's buffers may take in the whole stream,
    so that it has been sent as far as a server can tell."""
    config = ServerConfig(deadline_seconds=0.5)
    service = Service(ScriptedLLM(ControlledRunner(says("y" * 30))), config)  # type: ignore[arg-type]
    messages = iter([{"type": "http.request", "body": json.dumps(chat_body(stream=True)).encode()}])
    path = "/v1/chat/completions"
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}
    scope |= {"headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]}
    scope |= {"query_string": b"", "root_path": ""}

    async def ask() -> bytes:
        never = asyncio.Event()

        async def receive() -> Any:
            return next(messages, None) or await never.wait()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                await never.wait()  # as uvicorn waits for a client that reads nothing

        async with asyncio.timeout(60), service.running():
            await create_app(service)(scope, receive, send)
            return await service.metrics.render()

    told = asyncio.run(ask()).decode()
    assert 'rho_eos_requests_total{outcome="deadline_exceeded"} 1.0' in told
    assert "rho_eos_requests_running 0.0" in told


def test_a_slow_reader_of_a_finished_answer_gets_all_of_it() -> None:
    fields = {"stream": True, "stream_mode": "denoise", "initial_length": 208, "n": 4}
    content = json.dumps(chat_body("?", **fields)).encode()
    with serving(ControlledRunner(says("y" * 200))) as server, socket.socket() as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        link.connect(("127.0.0.1", httpx.URL(server.url).port))
        head = f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode()
        link.sendall(POST + head + content)
        time.sleep(1)
        sent = link.recv(2048)
        time.sleep(1)
        assert b"[DONE]" in sent + all_of(link)


def test_without_file_descriptors_it_says_so_once_a_second_and_recovers(server: Process) -> None:
    pid = server.popen.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    said = len(server.log.read_text().splitlines())
    held = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    with ExitStack() as links:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (held + 4, before[1]))
        try:
            started = time.monotonic()
            for _ in range(30):
                links.enter_context(connect(server.url))
            lines = lambda: server.log.read_text().splitlines()[said:]  # noqa: E731
            wait_until(lambda: any("Too many open files" in line for line in lines()), 30)
            time.sleep(2.5)
            took = time.monotonic() - started
            told = lines()
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    assert len(told) <= took + 2, f"{len(told)} lines in {took:.1f} s"
    assert not any("Traceback" in line for line in told)
    assert httpx.get(f"{server.url}/health", timeout=60, trust_env=False).status_code == 200


def test_nonsense_behind_an_answered_request_is_no_traceback(server: Process) -> None:
    """The rest of a body that was too large may be malformed: uvicorn cannot answer that again."""
    said = len(server.log.read_text())
    with connect(server.url) as link:
        link.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"200000\r\n" + b"x" * 0x200000)
        assert link.recv(65536).startswith(b"HTTP/1.1 413")
        link.sendall(b"\r\nno chunk\r\n")
        all_of(link)
    assert "Traceback" not in server.log.read_text()[said:]


def test_a_second_signal_ends_it_at_once_without_a_traceback(
    byte_checkpoint: Path, tmp_path: Path
) -> None:
    process = start_server(byte_checkpoint, tmp_path / "log", "--drain-seconds", "300")
    slow = {"initial_length": 256, "max_tokens": 400, "threshold": 1.0, "block_length": 1}
    body = chat_body(model=None, stream=True, **slow)
    with (
        suppress(httpx.TransportError),
        process.web.stream("POST", "/v1/chat/completions", json=body) as answer,
    ):
        next(answer.iter_raw())
        process.popen.send_signal(signal.SIGTERM)
        wait_until(lambda: "Shutting down" in process.log.read_text(), 30)
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(20) == 128 + signal.SIGTERM
    said = process.log.read_text()
    assert "Traceback" not in said and "Exception" not in said, said
    assert "signalled again" in said.splitlines()[-1]
