"""Steps of an engine on the pretended device, and what they asked of it."""

from collections.abc import Sequence
from typing import Any

from rho_eos.decoding.params import DecodeParams
from rho_eos.engine.request import Handle
from rho_eos.engine.row import Row
from rho_eos.engine.runner import ModelRunner
from tests.gpu.ledger import Ledger
from tests.gpu.pretend import PretendGPU
from tests.reference.bridge import SPECIAL
from tests.requests import request

PROMPT = [4 + k % 30 for k in range(40)]


def rows(count: int, **params: Any) -> list[Row]:
    """Rows of different lengths that are decoded alike."""
    return [
        Row(Handle(request(str(k), PROMPT[k % 8 :], DecodeParams(**params)))) for k in range(count)
    ]


def ledgers(gpu: PretendGPU, runner: ModelRunner, batch: Sequence[Row], steps: int) -> list[Ledger]:
    """That of each step."""
    seen = []
    for _ in range(steps):
        for row in batch:
            row.forward  # noqa: B018  planned before the step, as in an engine
        seen.append(gpu.new_ledger())
        for row, prediction in zip(batch, runner.predict(batch), strict=True):
            row.advance(prediction)
    return seen


__all__ = ["PROMPT", "SPECIAL", "ledgers", "rows"]
