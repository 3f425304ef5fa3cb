"""Overload, disconnects, faults and a dying worker, over HTTP: nobody hangs, nothing leaks."""

import asyncio
import json
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import psutil

from rho_eos.text.user_text import tokenizing
from tests.scripted import Guesses, decode, says
from tests.server.clients import Web, connect, error_of, text_of
from tests.server.scripted_server import ControlledRunner, chat_body, serving
from tests.support import wait_until

RUNNING, WAITING = "rho_eos_requests_running", "rho_eos_requests_waiting"


def echo(prompt: list[int], canvas: list[int], step: int) -> Guesses:
    """A model that answers with its prompt, so that a mixed-up answer would be seen."""
    return says(decode(prompt) + "!")(prompt, canvas, step)


def test_a_disconnect_is_noticed_within_a_step() -> None:
    runner = ControlledRunner(says("x" * 64), seconds=0.2)
    with serving(runner) as server:
        for streaming in (False, True):
            body = chat_body(stream=streaming, initial_length=64)
            # A stream begins and is left; a whole answer does not come in time.
            with (
                suppress(httpx.ReadTimeout),
                Web(server.url, timeout=0.5) as impatient,
                impatient.stream("POST", "/v1/chat/completions", json=body),
            ):
                pass
            forwards = len(runner.batches)
            server.wait_for_metric(RUNNING, 0, seconds=10)
            assert len(runner.batches) <= forwards + 2, "it went on without its client"
        assert server.metric('rho_eos_requests_total{outcome="cancelled"}') == 2


def test_a_full_queue_says_when_to_come_back() -> None:
    runner = ControlledRunner(says("ok"))
    with serving(runner, max_rows=1, max_waiting=1) as server, ThreadPoolExecutor(2) as pool:
        runner.may_run.clear()
        first = [pool.submit(server.chat) for _ in range(2)]
        server.wait_for_requests(2)  # one of them may be seen waiting before it runs
        refused = server.chat()
        assert error_of(refused, 429)["type"] == "rate_limit_error"
        assert int(refused.headers["retry-after"]) >= 1
        runner.may_run.set()
        assert [answer.result().status_code for answer in first] == [200, 200]
        assert server.chat().status_code == 200


def test_a_failed_forward_is_a_500_for_who_caused_it_and_the_others_are_answered() -> None:
    runner = ControlledRunner(echo)
    runner.fault = lambda prompts: ValueError("no room at /srv") if "bad" in prompts else None
    prompts = ["bad", *(f"good {i}" for i in range(7))]
    with serving(runner, max_rows=4) as server, ThreadPoolExecutor(8) as pool:
        runner.may_run.clear()
        answers = [pool.submit(server.chat, prompt) for prompt in prompts]
        server.wait_for_requests(8)
        runner.may_run.set()
        bad, *good = (answer.result() for answer in answers)
        error = error_of(bad, 500)
        assert error["code"] == "request_failed" and "/srv" not in error["message"]
        assert [text_of(each) for each in good] == [f"{prompt}!" for prompt in prompts[1:]]
        assert server.http.get("/ready").status_code == 200
        assert server.metric('rho_eos_requests_total{outcome="request_failed"}') == 1
        assert server.metric('rho_eos_requests_total{outcome="stop"}') == 7


def test_a_dead_worker_is_a_503_for_everybody_and_not_ready() -> None:
    runner = ControlledRunner(says("never"))
    runner.fault = lambda prompts: SystemExit("killed")
    with serving(runner, max_rows=1) as server, ThreadPoolExecutor(4) as pool:
        runner.may_run.clear()
        pending = [pool.submit(server.chat, stream=bool(i % 2)) for i in range(4)]
        server.wait_for_metric(WAITING, 3)
        runner.may_run.set()
        assert [answer.result(20).status_code for answer in pending] == [503] * 4
        assert server.chat().status_code == 503
        assert server.http.get("/ready").status_code == 503
        assert server.http.get("/health").status_code == 503


class PanicException(BaseException):
    """What a panic in Rust is in Python: the tokenizers library has one of this name."""


def test_errors_in_retiring_a_row_belong_to_the_row() -> None:
    """The text of a bad one cannot be made: when it ends, and when it is cancelled."""
    runner = ControlledRunner(echo)
    with serving(runner, max_rows=4) as server, ThreadPoolExecutor(8) as pool:
        engine = server.service.llm.engine
        plain = engine.detokenize

        def detokenize(ids: list[int]) -> str:
            if "bad" in plain(ids):
                with tokenizing():
                    raise PanicException("index out of bounds")
            return plain(ids)

        engine.detokenize = detokenize
        for left in (True, False):
            runner.may_run.clear()
            prompts = ["bad", "good 1", "bad", "good 2"]
            deadline = 0.5 if left else 60
            answers = [pool.submit(server.chat, p, deadline_seconds=deadline) for p in prompts]
            server.wait_for_requests(4)
            if left:
                assert [answer.result().status_code for answer in answers] == [504] * 4
                runner.may_run.set()
                server.wait_for_metric(RUNNING, 0)
                continue
            runner.may_run.set()
            codes = [answer.result().status_code for answer in answers]
            assert codes == [500, 200, 500, 200]
            said = error_of(answers[0].result(), 500)["message"]
            assert "tokenizer failed" in said and "index out of bounds" in said
        assert server.http.get("/health").status_code == 200
        assert text_of(server.chat("good 3")) == "good 3!"


def test_a_deadline_is_a_504_even_if_the_model_hangs() -> None:
    runner = ControlledRunner(says("late"))
    with serving(runner) as server:
        runner.may_run.clear()
        own = error_of(server.chat(deadline_seconds=0.2), 504)
        assert own["code"] == "deadline_exceeded"
        runner.may_run.set()
        server.wait_for_metric(RUNNING, 0)
        assert server.chat().status_code == 200
    with serving(runner, deadline_seconds=0.2) as server:
        runner.may_run.clear()
        assert server.chat(deadline_seconds=1000).status_code == 504  # not the client's to extend


def test_while_it_drains_running_requests_finish_and_new_ones_are_turned_away() -> None:
    runner = ControlledRunner(says("finished"))
    with serving(runner, drain_seconds=60) as server, ThreadPoolExecutor(1) as pool:
        runner.may_run.clear()
        running = pool.submit(server.chat)
        server.wait_for_metric(RUNNING, 1)
        # The event loop answers while a forward takes its time.
        assert server.http.get("/health", timeout=5).status_code == 200
        assert not running.done()
        engine = server.service.engine
        draining = asyncio.run_coroutine_threadsafe(engine.drain(60), engine._loop)
        wait_until(lambda: not engine.ready, 30)
        assert server.http.get("/ready").status_code == 503
        late = server.chat()
        assert late.status_code == 503 and late.headers["retry-after"]
        runner.may_run.set()
        assert text_of(running.result()) == "finished"
        draining.result(20)


def test_a_slow_sender_is_turned_away_and_holds_nobody_up() -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    slow = serving(ControlledRunner(says("ok")), body_seconds=0.5)
    with slow as server, connect(server.url) as half_a_body:
        half_a_body.sendall(head + b'Content-Length: 1000\r\n\r\n{"model": ')
        assert server.chat().status_code == 200
        assert half_a_body.recv(4096).startswith(b"HTTP/1.1 408")
        while half_a_body.recv(4096):
            pass  # and its connection ends


def test_requests_and_disconnects_in_rounds_leave_nothing_behind() -> None:
    """A third of the clients leave at random moments; the rest get their own answers."""
    rounds, each = 5, 300
    runner = ControlledRunner(echo, seconds=0.001)
    dice = random.Random(5)
    memory: list[int] = []

    async def answered(http: httpx.AsyncClient, number: int, leaves: bool) -> bool:
        """Whether the answer was right, or the client left before its end, as it meant to."""
        body = chat_body(f"question {number}", initial_length=32, stream=True)
        pieces = dice.randrange(4) if leaves else None
        text = ""
        async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                if pieces is not None and len(text) >= pieces:
                    return True
                if line.startswith("data: {"):
                    delta = json.loads(line.removeprefix("data: "))["choices"][0]["delta"]
                    text += delta.get("content", "")
        return text == f"question {number}!"

    async def one_round(url: str) -> list[bool]:
        limits = httpx.Limits(max_connections=48)
        async with httpx.AsyncClient(
            base_url=url, timeout=300, limits=limits, trust_env=False
        ) as http:
            clients = (answered(http, number, number % 3 == 0) for number in range(each))
            return await asyncio.gather(*clients)

    with serving(runner) as server:
        for _ in range(rounds):
            assert all(asyncio.run(one_round(server.url)))
            server.wait_for_metric(RUNNING, 0)
            server.wait_for_metric(WAITING, 0)
            runner.batches.clear()  # the script's own memory is not the server's
            runner.positions.clear()
            memory.append(psutil.Process().memory_info().rss)
        inner = server.service.engine
        assert not inner._open and not inner._news and not inner._engine._rows
        assert server.metric('rho_eos_requests_total{outcome="cancelled"}') > 0
    growth = (memory[-1] - memory[1]) / (each * (rounds - 2))
    assert growth < 5500, f"memory grew by {growth:.0f} bytes a request: {memory}"
