"""Engines and steps on the pretended device, and what they asked of it."""

from collections.abc import Sequence
from typing import Any

import torch

from rho_eos.decoding.blocks import Blocks
from rho_eos.decoding.canvas import Canvas
from rho_eos.decoding.params import DecodeParams
from rho_eos.engine.request import Handle
from rho_eos.engine.row import Row
from rho_eos.engine.runner import ModelRunner
from rho_eos.models.layer import join_products
from rho_eos.text.ask import Request
from tests.gpu.ledger import Ledger
from tests.gpu.pretend import PretendGPU, on_gpu
from tests.reference.bridge import SPECIAL

PROMPT = [4 + k % 30 for k in range(40)]


def loaded(model: torch.nn.Module) -> ModelRunner:
    """A model brought to the device as `load_model` does it."""
    model = on_gpu(model)
    join_products(model)
    return ModelRunner(model, SPECIAL)


def rows(count: int, blocks: Blocks | None = None, **params: Any) -> list[Row]:
    """Rows of different lengths that are decoded alike."""
    made = []
    for k in range(count):
        own = DecodeParams(**params)
        prompt, length = PROMPT[k % 8 :], own.first_length
        canvas = Canvas.of(SPECIAL, prompt, length, blocks=blocks)
        made.append(Row(Handle(Request(str(k), canvas, own))))
    return made


def ledgers(gpu: PretendGPU, runner: ModelRunner, batch: Sequence[Row], steps: int) -> list[Ledger]:
    """That of each step."""
    seen = []
    for _ in range(steps):
        seen.append(gpu.new_ledger())
        for row, prediction in zip(batch, runner.predict(batch), strict=True):
            row.advance(prediction)
    return seen
