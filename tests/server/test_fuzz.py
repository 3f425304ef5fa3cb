"""Random damage to requests, in bytes and in fields: an answer in the 400s, or a right one.

The seed is fixed, so that what fails can be run again.
"""

import json
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from tests.attack import times
from tests.server.clients import Web, connect
from tests.server.conftest import MODEL, Process

BODY = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "x"}], "max_tokens": 4})
REQUEST = (
    "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    f"Content-Length: {len(BODY)}\r\n\r\n{BODY}"
).encode()
ODD = [b"\r\n", b"\x00", b"\xff\xfe", b": ", b"chunked", b"Transfer-Encoding: chunked\r\n", b" "]
ODD += [b"Content-Length: -1\r\n", b"Content-Length: 99\r\n", b"Host: a\r\n", b"HTTP/9.9", b"%00"]
VALUES: list[Any] = [None, True, 0, -1, 1e308, 10**30, "", "x" * 100, "\ud800", [], {}, [[]]]
VALUES += [{"a": 1}, ["x"], [1], 0.5, 2**53, "nan", "1", [None], {"type": "text"}]


@pytest.fixture(autouse=True)
def unharmed(server: Process) -> Iterator[None]:
    """Afterwards the server answers, and has logged no error of its own."""
    before = server.log.read_text().count("Traceback")
    yield
    assert Web(server.url).get("/health").status_code == 200
    assert server.log.read_text().count("Traceback") == before


def test_damaged_bytes(server: Process) -> None:
    dice = random.Random(15)
    for _ in range(times(150, 5000)):
        data = bytearray(REQUEST)
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(data))
            match dice.randrange(3):
                case 0:
                    data[at] = dice.randrange(256)
                case 1:
                    data[at:at] = dice.choice(ODD)
                case 2:
                    del data[at : at + dice.randint(1, 20)]
        with connect(server.url) as link, suppress(ConnectionError):
            link.sendall(data)
            link.shutdown(socket.SHUT_WR)
            answer = b""
            while part := link.recv(65536):
                answer += part
            for status in [line[9:12] for line in answer.split(b"\r\n") if line[:5] == b"HTTP/"]:
                assert status[:1] in (b"2", b"4"), bytes(data)


def test_damage_behind_a_request_that_is_refused_by_its_head(server: Process) -> None:
    """The connection has answered the damage before the application comes to its own refusal."""
    head = REQUEST.split(b"\r\n\r\n")[0].replace(b"127.0.0.1", b"elsewhere.example")
    chunked = head.replace(f"Content-Length: {len(BODY)}".encode(), b"Transfer-Encoding: chunked")
    with connect(server.url) as link:
        link.sendall(chunked + b"\r\n\r\nZZ\r\n")
        assert link.recv(65536)[9:12] == b"400"


def test_damaged_fields(web: Web) -> None:
    dice = random.Random(16)
    schema = web.get("/openapi.json").json()
    fields = sorted(schema["components"]["schemas"]["ChatRequest"]["properties"])
    for _ in range(times(150, 5000)):
        body = json.loads(BODY)
        for _ in range(dice.randint(1, 3)):
            body[dice.choice(fields)] = dice.choice(VALUES)
        body["max_tokens"] = dice.choice([4, *VALUES])
        content = json.dumps(body)
        headers = {"content-type": "application/json"}
        answer = web.post("/v1/chat/completions", content=content, headers=headers)
        assert answer.status_code == 200 or 400 <= answer.status_code < 500, content


def test_idle_connections_hold_nobody_up(server: Process, web: Web) -> None:
    with ExitStack() as links:
        for _ in range(times(200, 800)):
            links.enter_context(connect(server.url))
        assert web.get("/health").status_code == 200
