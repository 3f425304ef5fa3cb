"""Whoever submits a request hears of it, all of it, and nobody else does."""

import itertools
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rho_eos import LLM, DecodeParams, FinishReason, StepEvent
from rho_eos.engine.errors import RequestFailedError
from rho_eos.engine.request import Detail
from rho_eos.files.jobs import decode_all
from tests.requests import request as request_for
from tests.scripted import ScriptedRunner, encode, engine_of, says


def steps(count: int) -> DecodeParams:
    """So many forwards: one of its `count` positions in each."""
    return DecodeParams(policy="fixed", initial_length=count, steps=count, early_stop=False)


@pytest.fixture(scope="module")
def llm(byte_checkpoint: Path) -> LLM:
    return LLM(str(byte_checkpoint))


@pytest.fixture(autouse=True)
def nothing_stays_behind(llm: LLM) -> Iterator[None]:
    yield
    assert not llm.engine.has_work
    assert not llm.engine._rows


def joined(events: list[StepEvent]) -> str:
    return "".join(event.delta for event in events)


def check_complete(events: list[StepEvent], count: int) -> None:
    assert [event.record.step for event in events] == list(range(count))
    assert [event.output is not None for event in events] == [False] * (count - 1) + [True]
    assert joined(events) == events[-1].output.text


@pytest.mark.parametrize("seed", range(5))
def test_streams_read_in_any_order_get_what_they_get_alone(llm: LLM, seed: int) -> None:
    lengths = {"a": 3, "b": 9, "c": 5, "d": 7}
    alone = {name: joined(list(llm.stream(name, steps(n)))) for name, n in lengths.items()}
    streams = {name: llm.stream(name, steps(n)) for name, n in lengths.items()}
    heard: dict[str, list[StepEvent]] = {name: [] for name in streams}
    order = random.Random(seed)
    while streams:
        name = order.choice(sorted(streams))
        event = next(streams[name], None)
        if event is None:
            del streams[name]
        else:
            heard[name].append(event)
    for name, events in heard.items():
        check_complete(events, lengths[name])
        assert joined(events) == alone[name]


def test_a_stream_that_is_left_early_takes_nothing_from_another(llm: LLM) -> None:
    left, other = llm.stream("left", steps(8)), llm.stream("other", steps(6))
    events = [next(other)]
    next(left)
    left.close()
    events += other
    check_complete(events, 6)


def test_generate_while_a_stream_is_open(llm: LLM) -> None:
    alone = llm.generate(["inside"], steps(8))[0].token_ids
    stream = llm.stream("outside", steps(5))
    events = [next(stream)]
    assert llm.generate(["inside"], steps(8))[0].token_ids == alone  # it ends after the stream's
    events += stream
    check_complete(events, 5)


def test_ctrl_c_in_the_middle_of_generate(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call ends with the interrupt; an open stream goes on, and the model can be used again."""
    expected = llm.generate(["again"], steps(4))[0].token_ids
    stream = llm.stream("open", steps(6))
    events = [next(stream)]
    forwards = iter([False, False, True])
    predict = llm.runner.predict

    def interrupted(rows: Any) -> Any:
        if next(forwards, False):
            raise KeyboardInterrupt
        return predict(rows)

    monkeypatch.setattr(llm.runner, "predict", interrupted)
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["first", "second"], steps(12))
    assert len(llm.engine._rows) == 1, "only the stream is left"
    events += stream
    check_complete(events, 6)
    assert llm.generate(["again"], steps(4))[0].token_ids == expected


@pytest.mark.parametrize("where", ["admit", "add"])
@pytest.mark.parametrize("after", [False, True])
def test_an_interrupt_while_requests_are_submitted_leaves_none(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, where: str, after: bool
) -> None:
    """Ctrl-C at the eighth of twelve, before or after it has got a place in the queue."""
    owner: Any = llm.engine if where == "admit" else llm.engine.scheduler
    do, count = getattr(owner, where), itertools.count()

    def interrupted(what: Any) -> None:
        if after:
            do(what)
        if next(count) % 8 == 7:
            raise KeyboardInterrupt
        if not after:
            do(what)

    monkeypatch.setattr(owner, where, interrupted)
    with pytest.raises(KeyboardInterrupt):
        llm.generate([f"prompt {number}" for number in range(12)], steps(4))
    assert not llm.engine.has_work and not llm.engine._rows
    with pytest.raises(KeyboardInterrupt):
        list(decode_all(llm.engine, (request_for(str(n), [1], steps(4)) for n in range(12))))
    assert not llm.engine.has_work and not llm.engine._rows


def test_an_interrupt_between_rows_fails_the_row_it_hit_and_says_so() -> None:
    """Half a step may have been taken there; the others have not noticed."""
    engine = engine_of(says("hello"))
    first, hit, last = (engine.add(id, encode("?"), steps(4)) for id in ("a", "b", "c"))

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    engine._rows[hit].policy.step = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    with pytest.raises(RequestFailedError, match="KeyboardInterrupt"):
        hit.result()
    engine.finish([first, last])
    for handle in (first, last):
        assert [event.record.step for event in handle.events] == [0, 1, 2, 3]


def test_two_threads_share_one_model(llm: LLM) -> None:
    prompts = [f"prompt {number}" for number in range(6)]
    alone = {prompt: llm.generate([prompt], steps(9))[0].token_ids for prompt in prompts}
    found: dict[str, list[list[int]]] = {prompt: [] for prompt in prompts}

    def work(prompt: str, streams: bool) -> None:
        for _ in range(3):
            if streams:
                events = list(llm.stream(prompt, steps(9)))
                check_complete(events, 9)
                found[prompt].append(events[-1].output.token_ids)
            else:
                found[prompt].append(llm.generate([prompt], steps(9))[0].token_ids)

    threads = [
        threading.Thread(target=work, args=(prompt, number % 2 == 0))
        for number, prompt in enumerate(prompts)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {prompt: [alone[prompt]] * 3 for prompt in prompts}


class Faulty(ScriptedRunner):
    """A model that cannot forward more than so many rows, nor one prompt at all."""

    def __init__(self, most: int, never: str) -> None:
        super().__init__(says("hello"))
        self.most, self.never = most, never

    def predict(self, rows: Any) -> Any:
        if len(rows) > self.most or any(row.id == self.never for row in rows):
            self.batches.append([f"failed: {row.id}" for row in rows])
            raise RuntimeError("out of memory")
        return super().predict(rows)


def test_a_failed_forward_is_tried_again_in_halves_until_the_culprit_is_alone() -> None:
    runner = Faulty(most=3, never="e")
    engine = engine_of(runner)
    handles = [engine.add(id, encode("?"), steps(1)) for id in "abcdefgh"]
    engine.step()
    failed = [handle.request.id for handle in handles if handle.error is not None]
    assert failed == ["e"]
    assert all(handle.done for handle in handles)
    served = [id for batch in runner.batches for id in batch if not id.startswith("failed")]
    assert served == list("abcdfgh"), "nobody is forwarded twice"
    assert sorted(runner.released) == list("abcdefgh")


def test_many_requests_go_on_when_one_of_them_fails() -> None:
    engine = engine_of(Faulty(most=99, never="3"), max_rows=2)
    requests = (request_for(str(n), encode("?"), steps(2)) for n in range(6))
    outputs = {output.id: output for output in decode_all(engine, requests)}
    assert sorted(outputs) == list("012345")
    assert outputs["3"].finish_reason is FinishReason.ERROR
    assert (outputs["3"].error or "").startswith("the model failed: RuntimeError: ")
    assert all(outputs[id].text == "he" for id in "01245")


def test_leaving_many_requests_early_cancels_what_is_in_flight() -> None:
    runner = ScriptedRunner(says("hello"))
    engine = engine_of(runner, max_rows=2)
    outputs = decode_all(engine, (request_for(str(n), encode("?"), steps(2)) for n in range(50)))
    next(outputs)
    outputs.close()
    assert not engine.has_work


def test_events_that_nobody_reads_are_kept_for_who_asked_for_them() -> None:
    engine = engine_of(says("hello"))
    handle = engine.submit(request_for("a", encode("?"), steps(5)), Detail.STEPS)
    quiet = engine.submit(request_for("b", encode("?"), steps(5)))
    while engine.has_work:
        engine.step()
    assert [event.record.step for event in handle.events] == [0, 1, 2, 3, 4]
    assert len(quiet.events) == 1  # the last one
    assert [event.output is not None for event in engine.follow(handle)] == [False] * 4 + [True]


def test_waiting_and_first_token_are_measured_from_submission() -> None:
    engine = engine_of(says("hello"), max_rows=1)
    first = engine.add("first", encode("?"), steps(3))
    second = engine.add("second", encode("?"), steps(3))
    engine.finish([first, second])
    usage = second.result().usage
    assert usage.seconds_waiting >= first.result().usage.seconds_running
    assert usage.seconds_to_first_token is not None
    assert usage.seconds_waiting <= usage.seconds_to_first_token
    assert usage.seconds_to_first_token <= usage.seconds_waiting + usage.seconds_running
