"""Random damage to requests, in bytes and in fields: an answer in the 400s, or a right one.

The seed is fixed, so that what fails can be run again.
"""

import json
import random
import socket
from contextlib import suppress
from typing import Any

import httpx

from tests.attack import times
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


def lines_of_errors(server: Process) -> int:
    return server.log.read_text().count("Traceback")


def alive(server: Process) -> bool:
    return httpx.get(f"{server.url}/health", timeout=60, trust_env=False).status_code == 200


def test_damaged_bytes(server: Process) -> None:
    dice = random.Random(15)
    before = lines_of_errors(server)
    address = ("127.0.0.1", httpx.URL(server.url).port)
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
        with socket.create_connection(address, timeout=10) as link, suppress(ConnectionError):
            link.sendall(data)
            link.shutdown(socket.SHUT_WR)
            answer = b""
            while part := link.recv(65536):
                answer += part
            for status in [line[9:12] for line in answer.split(b"\r\n") if line[:5] == b"HTTP/"]:
                assert status[:1] in (b"2", b"4"), bytes(data)
    assert alive(server)
    assert lines_of_errors(server) == before


def test_damaged_fields(server: Process) -> None:
    dice = random.Random(16)
    schema = httpx.get(f"{server.url}/openapi.json", timeout=60, trust_env=False).json()
    fields = sorted(schema["components"]["schemas"]["ChatRequest"]["properties"])
    before = lines_of_errors(server)
    with httpx.Client(base_url=server.url, timeout=120, trust_env=False) as http:
        for _ in range(times(150, 5000)):
            body = json.loads(BODY)
            for _ in range(dice.randint(1, 3)):
                body[dice.choice(fields)] = dice.choice(VALUES)
            body["max_tokens"] = dice.choice([4, *VALUES])
            content = json.dumps(body)
            answer = http.post(
                "/v1/chat/completions",
                content=content,
                headers={"content-type": "application/json"},
            )
            assert answer.status_code == 200 or 400 <= answer.status_code < 500, content
    assert alive(server)
    assert lines_of_errors(server) == before


def test_idle_connections_hold_nobody_up(server: Process) -> None:
    address = ("127.0.0.1", httpx.URL(server.url).port)
    links = []
    try:
        for _ in range(times(200, 800)):
            links.append(socket.create_connection(address, timeout=30))
        assert alive(server)
    finally:
        for link in links:
            link.close()
    assert alive(server)
