"""What a client can do to a connection, with raw sockets: the others must not notice."""

import json
import resource
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from tests.scripted import says
from tests.server.clients import hammering
from tests.server.conftest import MODEL, Process, start_server
from tests.server.scripted_server import ControlledRunner, Scripted, chat_body, serving
from tests.support import wait_until

POST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
)


def connect(server: Scripted, receive_buffer: int | None = None) -> socket.socket:
    link = socket.socket()
    if receive_buffer is not None:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    link.settimeout(30)
    link.connect(("127.0.0.1", httpx.URL(server.url).port))
    return link


def all_of(link: socket.socket) -> bytes:
    """Everything until the other side ends; a reset after an answer is an end as well."""
    parts = []
    with suppress(ConnectionResetError):
        while part := link.recv(65536):
            parts.append(part)
    return b"".join(parts)


def exchange(server: Scripted, *pieces: bytes) -> bytes:
    with connect(server) as link:
        for piece in pieces:
            link.sendall(piece)
        return all_of(link)


@pytest.fixture(scope="module")
def open_server() -> Iterator[Scripted]:
    with serving(ControlledRunner(says("ok"))) as server:
        yield server


@pytest.fixture(scope="module")
def locked() -> Iterator[Scripted]:
    with serving(ControlledRunner(says("ok")), api_key=("secret",)) as server:
        yield server


@pytest.mark.parametrize("coding", [b"chunked", b"Chunked", b"identity", b"gzip, chunked"])
def test_two_lengths_of_one_body_are_refused(open_server: Scripted, coding: bytes) -> None:
    """A proxy that believes the other one would see another request in it."""
    head = POST + b"Content-Length: 4\r\nTransfer-Encoding: " + coding + b"\r\n\r\n"
    smuggled = b"0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    answer = exchange(open_server, head + smuggled)
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 "))
    assert answer.count(b"HTTP/1.1 ") == 1 and b"rho_eos_" not in answer


def test_a_chunked_body_of_ordinary_pieces_is_taken(open_server: Scripted) -> None:
    body = json.dumps(chat_body("x" * 30_000)).encode()
    chunks = [body[at : at + 100] for at in range(0, len(body), 100)]
    with httpx.Client(trust_env=False) as client:
        answer = client.post(
            f"{open_server.url}/v1/chat/completions",
            content=iter(chunks),
            headers={"Content-Type": "application/json"},
        )
    assert answer.status_code == 200, answer.text


def test_a_body_of_crumbs_is_refused(open_server: Scripted) -> None:
    head = POST + b"Transfer-Encoding: chunked\r\n\r\n"
    answer = exchange(open_server, head, b"1\r\n{\r\n" * 5000)
    assert answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("path", [b"POST /v1/chat/completions", b"GET /metrics", b"GET /health"])
def test_an_answer_before_the_end_of_its_request_ends_the_connection(
    locked: Scripted, path: bytes
) -> None:
    head = path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n"
    with connect(locked) as link:
        link.sendall(head + b"x" * 1000)
        started = time.monotonic()
        answer = all_of(link)
        assert time.monotonic() - started < 20
    wanted = b"200" if b"health" in path else b"401"
    assert answer.startswith(b"HTTP/1.1 " + wanted)
    assert answer.count(b"HTTP/1.1 ") == 1


def test_a_whole_request_without_a_key_is_the_last_of_its_connection(locked: Scripted) -> None:
    request = b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    answer = exchange(locked, request * 3)
    assert answer.count(b"HTTP/1.1 401") == 1 and b"connection: close" in answer.lower()


def test_a_large_body_does_not_cost_its_sender_the_answer(locked: Scripted) -> None:
    """Closed at once, the connection would be reset before the 401 is read."""
    answer = locked.http.post("/v1/chat/completions", content=b"x" * 8_000_000)
    assert answer.status_code == 401


def median_of_health(server: Scripted, count: int = 9) -> float:
    took = []
    for _ in range(count):
        started = time.perf_counter()
        assert httpx.get(f"{server.url}/health", timeout=60, trust_env=False).status_code == 200
        took.append(time.perf_counter() - started)
    return sorted(took)[count // 2]


@pytest.mark.parametrize("keys", ["locked", "open_server"])
def test_bodies_in_chunks_of_one_byte_hold_nobody_up(
    keys: str, request: pytest.FixtureRequest
) -> None:
    server: Scripted = request.getfixturevalue(keys)
    payload = POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 100_000
    quiet = median_of_health(server)
    with hammering(16, lambda: exchange(server, payload)):
        loaded = median_of_health(server)
    assert loaded < 30 * max(quiet, 0.02), f"{loaded:.3f} s, and {quiet:.3f} s without"


def test_a_stream_that_nobody_reads_ends_at_the_deadline_and_is_counted() -> None:
    with serving(ControlledRunner(says("y" * 300)), deadline_seconds=1.5) as server:
        fields = {"stream": True, "stream_mode": "denoise", "initial_length": 320, "n": 16}
        request = httpx.Request("POST", server.url, json=chat_body("?", **fields))
        head = POST + f"Content-Length: {len(request.content)}\r\n\r\n".encode()
        with connect(server, receive_buffer=4096) as link:
            link.sendall(head + request.content)
            name = 'rho_eos_requests_total{outcome="deadline_exceeded"}'
            server.wait_for_metric(name, 1, seconds=30)
            server.wait_for_metric("rho_eos_requests_running", 0)
            # Not only forgotten: the connection itself is gone, with what was left to send.
            wait_until(lambda: not _established(link), 30, "the connection is closed")
            sent = all_of(link)
        assert sent.startswith(b"HTTP/1.1 200") and not sent.endswith(b"[DONE]\n\n")


def _established(link: socket.socket) -> bool:
    """Whether the server still has its end, from the kernel's table."""
    port = link.getsockname()[1]
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return any(
        int(field[2].split(":")[1], 16) == port and field[3] == "01" and field[9] != "0"
        for field in fields
    )


def test_a_slow_reader_of_a_finished_answer_gets_all_of_it() -> None:
    with serving(ControlledRunner(says("y" * 200))) as server:
        fields = {"stream": True, "stream_mode": "denoise", "initial_length": 208, "n": 4}
        request = httpx.Request("POST", server.url, json=chat_body("?", **fields))
        head = POST + f"Content-Length: {len(request.content)}\r\n".encode()
        head += b"Connection: close\r\n\r\n"
        with connect(server, receive_buffer=4096) as link:
            link.sendall(head + request.content)
            parts = []
            for _ in range(4):  # longer than the server waits for who takes nothing
                time.sleep(0.8)
                parts.append(link.recv(2048))
            sent = b"".join(parts) + all_of(link)
        assert b"[DONE]" in sent


def test_without_file_descriptors_it_says_so_once_a_second_and_recovers(server: Process) -> None:
    pid = server.popen.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    said = len(server.log.read_text().splitlines())
    address = ("127.0.0.1", httpx.URL(server.url).port)
    held = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    with ExitStack() as links:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (held + 4, before[1]))
        try:
            started = time.monotonic()
            for _ in range(30):
                links.enter_context(socket.create_connection(address, timeout=30))
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


def test_a_second_signal_ends_it_at_once_without_a_traceback(
    byte_checkpoint: Path, tmp_path: Path
) -> None:
    process = start_server(byte_checkpoint, tmp_path / "log", "--drain-seconds", "300")
    url = f"{process.url}/v1/chat/completions"
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "x"}],
        "stream": True,
        "initial_length": 256,
        "max_tokens": 400,
        "threshold": 1.0,
        "block_length": 1,
    }
    with (
        httpx.Client(timeout=60, trust_env=False) as client,
        suppress(httpx.TransportError),
        client.stream("POST", url, json=body) as answer,
    ):
        next(answer.iter_raw())
        process.popen.send_signal(signal.SIGTERM)
        wait_until(lambda: "Shutting down" in process.log.read_text(), 30)
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(20) == 128 + signal.SIGTERM
    said = process.log.read_text()
    assert "Traceback" not in said and "Exception" not in said, said
    assert "signalled again" in said.splitlines()[-1]
