"""What a second attack on the server found: crowded bodies, unread pages, files that run out."""

import asyncio
import errno
import json
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from rho_eos.server.middleware import RequestLog
from tests.scripted import says
from tests.server.conftest import Process
from tests.server.scripted_server import ControlledRunner, Scripted, chat_body, serving
from tests.support import wait_until

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def quick() -> Iterator[Scripted]:
    with serving(ControlledRunner(says("ok")), deadline_seconds=1.0) as server:
        yield server


def connect(url: str, receive_buffer: int | None = None) -> socket.socket:
    link = socket.socket()
    if receive_buffer is not None:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    link.settimeout(30)
    link.connect(("127.0.0.1", httpx.URL(url).port))
    return link


@pytest.mark.parametrize("path", [b"/v1/rho_eos/schema", b"/"])
def test_a_page_that_nobody_reads_is_cut_at_the_deadline(quick: Scripted, path: bytes) -> None:
    """No stream, and no key needed: it waited for ever."""
    with connect(quick.url, receive_buffer=4096) as link:
        link.sendall((b"GET " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") * 1000)
        wait_until(lambda: _held_by_server(link), 10, "it was let in")
        wait_until(lambda: not _held_by_server(link), 90, "it was cut")  # buffers fill first


def _held_by_server(link: socket.socket) -> bool:
    """Whether a process has the other end, from the kernel's table."""
    port = link.getsockname()[1]
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(int(row[2].split(":")[1], 16) == port and row[9] != "0" for row in rows)


def test_who_reads_slowly_is_not_cut(quick: Scripted) -> None:
    request = b"GET /v1/rho_eos/schema HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    last = request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    whole = quick.http.get("/v1/rho_eos/schema").content
    count, started, got = 1 + 2_000_000 // len(whole), time.monotonic(), b""
    with connect(quick.url, receive_buffer=65536) as link:
        link.sendall(request * (count - 1) + last)
        while part := link.recv(1 << 17):
            got += part
            if time.monotonic() - started < 2:  # twice the deadline
                time.sleep(0.1)
    assert got.count(whole) == count


def test_a_body_in_small_chunks_is_refused(quick: Scripted) -> None:
    """Sixteen of them at once held up everybody for two seconds."""
    body = json.dumps(chat_body("x" * 200_000)).encode()
    pieces = (body[at : at + 64] for at in range(0, len(body), 64))
    try:
        answer = quick.http.post("/v1/chat/completions", content=pieces, headers=JSON)
        assert answer.status_code == 400 and "Invalid HTTP" in answer.text
    except httpx.WriteError:
        pass  # it was cut off while it was still sending


@pytest.mark.parametrize("item", ["[]", "{}", '{"role": "user", "content": []}', "[[[[[[[]]]]]]]"])
def test_a_body_of_very_many_lists_is_not_even_read(quick: Scripted, item: str) -> None:
    count = 1_000_000 // (len(item) + 1)
    body = '{"messages": [' + ",".join([item] * count) + "]}"
    brackets = body.count("[") + body.count("{")
    answer = quick.http.post("/v1/chat/completions", content=body, headers=JSON)
    assert answer.status_code == 400
    crowded = "more than 104857 lists and objects" in answer.json()["error"]["message"]
    assert crowded == (brackets > 104857)


def test_brackets_in_a_text_are_text(quick: Scripted) -> None:
    answer = quick.chat("[" * 30_000 + "{" * 30_000)
    assert answer.status_code == 200, answer.text


def test_a_request_that_finds_no_descriptor_is_told_to_come_back() -> None:
    told: list[dict[str, Any]] = []
    sent: list[Any] = []

    async def app(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async def ask() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        scope = {"type": "http", "method": "POST", "path": "/x", "raw_path": b"/x", "headers": []}

        async def send(message: Any) -> None:
            sent.append(message)

        await RequestLog(app)(scope, send, send)  # type: ignore[arg-type]

    asyncio.run(ask())
    assert sent[0]["status"] == 503 and len(told) == 1
    assert (b"retry-after", b"1") in sent[0]["headers"]


def test_files_that_cannot_be_opened_leave_no_tracebacks(server: Process) -> None:
    pid, get = server.popen.pid, b"GET /static/app.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    said = len(server.log.read_text())
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    with ExitStack() as opened:
        links = [opened.enter_context(connect(server.url)) for _ in range(6)]
        for link in links:  # so that each is surely accepted
            link.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert link.recv(4096).startswith(b"HTTP/1.1 200")
        held = max(int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir())
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(7, held), before[1]))
        try:
            for link in links:
                link.sendall(get)
                while link.recv(1 << 16):
                    pass  # the answer breaks off
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    lines = server.log.read_text()[said:]
    assert "Too many open files" in lines and "Traceback" not in lines, lines
    assert httpx.get(f"{server.url}/static/app.js", trust_env=False).status_code == 200
