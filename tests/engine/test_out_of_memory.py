"""A step that needs more memory than there is: smaller steps from then on, and one sentence."""

import logging
from collections.abc import Sequence

import pytest
import torch

from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.prediction import Prediction
from rho_eos.engine.engine import Engine
from rho_eos.engine.errors import RequestFailedError
from rho_eos.engine.memory import is_out_of_memory
from rho_eos.engine.row import Row
from rho_eos.text.ask import Request
from tests.requests import request as request_for
from tests.scripted import SPECIAL, ScriptedRunner, decode, encode, says

CPU_SAYS = "[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"
ERRORS = [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError(CPU_SAYS), MemoryError()]
PARAMS = DecodeParams(policy="fixed", initial_length=16, max_new_tokens=16, steps=4)


class Small(ScriptedRunner):
    """Has room for so many positions."""

    def __init__(self, room: int, error: BaseException) -> None:
        super().__init__(says("yes"))
        self.room = room
        self.error = error
        self.failures = 0

    def predict(self, rows: Sequence[Row]) -> list[Prediction]:
        if sum(row.cost for row in rows) > self.room:
            self.failures += 1
            raise self.error
        return super().predict(rows)


def requests(count: int) -> list[Request]:
    return [
        request_for(str(number), encode("ask?"), PARAMS) for number in range(count)
    ]  # 20 positions


@pytest.mark.parametrize("error", ERRORS, ids=["cuda", "cpu", "python"])
def test_fewer_positions_run_together_from_then_on(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    runner = Small(room=50, error=error)
    engine = Engine(runner, SPECIAL, decode)
    with caplog.at_level(logging.WARNING):
        outputs = engine.finish([engine.submit(request) for request in requests(8)])
    assert [output.text for output in outputs] == ["yes"] * 8
    assert engine.scheduler.max_positions == 40
    assert runner.failures == 3  # 160 positions, then two halves of it; no later step fails
    said = [record for record in caplog.records if "memory ran out" in record.message]
    assert len(said) == 1


def test_a_row_that_cannot_fit_fails_with_a_sentence() -> None:
    engine = Engine(Small(room=10, error=ERRORS[0]), SPECIAL, decode)
    handle = engine.submit(requests(1)[0])
    with pytest.raises(RequestFailedError, match="not enough memory for the 20 positions"):
        engine.finish([handle])
    assert engine.scheduler.max_positions == 16384  # it says nothing about smaller ones


def test_other_errors_change_no_budget() -> None:
    engine = Engine(Small(room=50, error=RuntimeError("broken")), SPECIAL, decode)
    engine.finish([engine.submit(request) for request in requests(4)])
    assert engine.scheduler.max_positions == 16384
    assert not is_out_of_memory(RuntimeError("shapes do not fit"))
