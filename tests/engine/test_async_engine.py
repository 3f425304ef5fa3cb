"""The engine's own thread: updates, cancelling, deadlines, and both planned kinds of failure."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from rho_eos.decoding.params import DecodeParams
from rho_eos.engine.async_engine import AsyncEngine
from rho_eos.engine.errors import (
    DeadlineExceededError,
    QueueFullError,
    RequestFailedError,
    UnavailableError,
)
from rho_eos.engine.generation import Generation
from rho_eos.engine.request import Detail
from tests.requests import request as request_for
from tests.scripted import encode, engine_of, says
from tests.server.scripted_server import ControlledRunner

PARAMS = DecodeParams(initial_length=16, max_new_tokens=32)
SOON = 20.0  # seconds; far more than anything here takes


@asynccontextmanager
async def started(
    runner: ControlledRunner, max_rows: int = 32, max_waiting: int = 256
) -> AsyncIterator[AsyncEngine]:
    engine = AsyncEngine(engine_of(runner, max_rows=max_rows), max_waiting)
    engine.start()
    try:
        yield engine
    finally:
        runner.may_run.set()
        await engine.stop()


def run(test: Callable[[], Awaitable[None]]) -> None:
    """A test of concurrency that fails must not hang."""
    asyncio.run(asyncio.wait_for(test(), 2 * SOON))  # type: ignore[arg-type]


def submit(
    engine: AsyncEngine, *prompts: str, detail: Detail = Detail.OUTPUT, **more: float
) -> Generation:
    requests = [request_for(prompt, encode(prompt), PARAMS) for prompt in prompts]
    return engine.submit(Generation(requests), detail, **more)


async def text_of(call: Generation) -> str:
    with call:
        [(_, event)] = [news async for news in call]
    assert event.output is not None
    return event.output.text


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def test_calls_share_the_engine_and_each_gets_its_own_answer() -> None:
    async def test() -> None:
        async with started(ControlledRunner(says("hello"))) as engine:
            calls = [submit(engine, f"{i}") for i in range(50)]
            assert await asyncio.gather(*map(text_of, calls)) == ["hello"] * 50
            assert (engine.running, engine.waiting) == (0, 0)

    run(test)


def test_detail_decides_what_is_heard() -> None:
    async def test() -> None:
        async with started(ControlledRunner(says("hello"))) as engine:
            heard = {}
            for detail in Detail:
                with submit(engine, "?", detail=detail) as call:
                    heard[detail] = [event async for _, event in call]
            assert len(heard[Detail.OUTPUT]) == 1
            deltas = [event.delta for event in heard[Detail.TEXT]]
            assert "".join(deltas) == "hello" and len(deltas) > 2
            assert all(deltas[:-1])
            steps = heard[Detail.STEPS]
            assert [event.record.step for event in steps] == list(range(len(steps)))
            assert "".join(event.delta for event in steps) == "hello"
            written = [token for event in steps for _, token, _ in event.record.committed]
            assert set(encode("hello")) <= set(written)

    run(test)


def test_leaving_a_call_takes_it_out_before_the_next_forward() -> None:
    runner = ControlledRunner(says("x" * 32))

    async def test() -> None:
        async with started(runner) as engine:
            with submit(engine, "gone", detail=Detail.STEPS) as call:
                await anext(call)
                runner.may_run.clear()  # before the second forward, or after some
            at_exit = len(runner.batches)
            runner.may_run.set()
            await until(lambda: engine.running == 0)
            # The forward that was under way, and at most the one whose results were on their way.
            assert len(runner.batches) <= at_exit + 2
            assert await text_of(submit(engine, "next")) == "x" * 32

    run(test)


def test_a_failed_forward_fails_the_culprit_and_nobody_else() -> None:
    runner = ControlledRunner(says("fine"))
    runner.fault = lambda prompts: ValueError("boom") if "bad" in prompts else None

    async def test() -> None:
        async with started(runner, max_rows=3) as engine:
            runner.may_run.clear()
            prompts = ["first", "bad", "mate", "third", "fourth"]
            calls = [submit(engine, prompt) for prompt in prompts]
            await asyncio.sleep(0.05)
            runner.may_run.set()
            results = await asyncio.gather(*map(text_of, calls), return_exceptions=True)
            failed = results.pop(1)
            assert type(failed) is RequestFailedError
            assert "ValueError" in str(failed) and "boom" not in str(failed)
            assert results == ["fine"] * 4
            assert engine.ready and engine.running == 0

    run(test)


def test_a_fault_in_what_follows_a_forward_fails_its_request_only() -> None:
    """Whoever had just finished in that step must hear of it as well, or would wait for ever."""
    runner = ControlledRunner(says("fine"))

    async def test() -> None:
        async with started(runner) as engine:
            inner = engine._engine
            plain = inner.detokenize
            runner.may_run.clear()
            calls = [submit(engine, "a"), submit(engine, "b", detail=Detail.TEXT)]
            failing = iter([True])

            def detokenize(ids: list[int]) -> str:
                if ids and next(failing, False):
                    raise RuntimeError("boom")
                return plain(ids)

            inner.detokenize = detokenize
            await asyncio.sleep(0.05)
            runner.may_run.set()
            results = await asyncio.gather(*map(text_of, calls), return_exceptions=True)
            assert sorted(type(result).__name__ for result in results) == [
                "RequestFailedError",
                "str",
            ]
            assert await text_of(submit(engine, "next")) == "fine"

    run(test)


def test_when_the_worker_dies_everybody_is_told() -> None:
    runner = ControlledRunner(says("never"))
    runner.fault = lambda prompts: SystemExit("killed")

    async def test() -> None:
        async with started(runner, max_rows=1) as engine:
            runner.may_run.clear()
            calls = [submit(engine, f"{i}") for i in range(3)]  # one running, two waiting
            waiting = asyncio.gather(*map(text_of, calls), return_exceptions=True)
            await asyncio.sleep(0.05)
            runner.may_run.set()
            assert [type(result) for result in await waiting] == [UnavailableError] * 3
            await until(lambda: not engine.ready)
            with pytest.raises(UnavailableError, match="worker is not running"):
                submit(engine, "late")

    run(test)


def test_a_deadline_holds_even_if_a_forward_hangs() -> None:
    runner = ControlledRunner(says("late"))

    async def test() -> None:
        async with started(runner) as engine:
            runner.may_run.clear()
            started_at = time.monotonic()
            with pytest.raises(DeadlineExceededError):
                await text_of(submit(engine, "?", seconds=0.2))
            assert time.monotonic() - started_at < SOON / 2
            runner.may_run.set()
            await until(lambda: engine.running == 0)
            assert await text_of(submit(engine, "?")) == "late"

    run(test)


def test_the_queue_has_an_end_and_a_call_fits_whole_or_not_at_all() -> None:
    runner = ControlledRunner(says("ok"))

    async def test() -> None:
        async with started(runner, max_rows=2, max_waiting=2) as engine:
            runner.may_run.clear()
            calls = [submit(engine, f"{i}") for i in range(3)]
            with pytest.raises(QueueFullError):
                submit(engine, "two", "more")
            calls.append(submit(engine, "one more"))
            with pytest.raises(QueueFullError):
                submit(engine, "too many")
            runner.may_run.set()
            assert await asyncio.gather(*map(text_of, calls)) == ["ok"] * 4
            assert await text_of(submit(engine, "again")) == "ok"

    run(test)


def test_draining_finishes_what_runs_and_takes_nothing_new() -> None:
    runner = ControlledRunner(says("done"), seconds=0.01)

    async def test() -> None:
        async with started(runner) as engine:
            answers = asyncio.gather(*(text_of(submit(engine, f"{i}")) for i in range(5)))
            await asyncio.sleep(0)
            draining = asyncio.ensure_future(engine.drain(SOON))
            await asyncio.sleep(0)
            with pytest.raises(UnavailableError, match="shutting down"):
                submit(engine, "late")
            assert await answers == ["done"] * 5
            await draining

    run(test)


def test_draining_has_an_end_and_tells_who_was_cut_off() -> None:
    runner = ControlledRunner(says("stuck"))

    async def test() -> None:
        async with started(runner) as engine:
            runner.may_run.clear()
            answer = asyncio.ensure_future(text_of(submit(engine, "?")))
            await asyncio.sleep(0.02)
            await engine.drain(0.1)
            with pytest.raises(UnavailableError, match="shut down before"):
                await answer

    run(test)


def test_a_call_of_several_sequences_ends_with_the_last_of_them() -> None:
    async def test() -> None:
        async with started(ControlledRunner(says("hi"))) as engine:
            with submit(engine, "a", "b", "c") as call:
                news = [news async for news in call]
            assert sorted(index for index, _ in news) == [0, 1, 2]
            assert [event.output.text for _, event in news if event.output] == ["hi"] * 3

    run(test)
