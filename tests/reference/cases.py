"""Models and prompts on which the engine is tried, and the engine run over many of them at once."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from rho_eos.base.outputs import Output
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.params import DecodeParams
from rho_eos.engine.runner import ModelRunner
from tests.reference.bridge import SPECIAL
from tests.scripted import RecordingEngine, run_all

LIMITS = {"initial_length": 16, "max_new_tokens": 48, "block_length": 12}
MODELS = {
    "mostly text, unsure": {"seed": 1, "eos_share": 0.1, "sharpness": 0.6},
    "balanced": {"seed": 2, "eos_share": 0.4, "sharpness": 4.0},
    "mostly EOS, grouped queries": {"seed": 3, "eos_share": 0.8, "sharpness": 3.0, "kv_heads": 2},
}


class SameEverywhere(nn.Module):
    """A model that gives the same logits at every position, whatever it is shown."""

    prediction_shift = 0
    dtype = torch.float32
    device = torch.device("cpu")

    def __init__(self, logits: list[float]) -> None:
        super().__init__()
        self.lm_head = nn.Linear(1, len(logits), bias=False)
        self.lm_head.weight.data = torch.tensor(logits)[:, None]

    def set_attn_implementation(self, name: str) -> None:
        pass

    def model(self, read_at: torch.Tensor, **_: Any) -> Any:
        return SimpleNamespace(last_hidden_state=torch.ones(1, len(read_at), 1))


def some_prompts(count: int, seed: int = 0, vocabulary: int = 40) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [random.integers(4, vocabulary, random.integers(1, 24)).tolist() for _ in range(count)]


def engine_decode(
    model: Any,
    prompts: Sequence[list[int]],
    params: Sequence[DecodeParams],
    rows: int = 8,
    special: SpecialTokens = SPECIAL,
) -> list[Output]:
    """What the engine makes of each prompt, `rows` at a time.

    Args:
        model: A model, or a runner of one.
    """
    runner = model if isinstance(model, ModelRunner) else ModelRunner(model, special)
    engine = RecordingEngine(runner, special, detokenize=lambda ids: "", max_rows=rows)
    for index, (prompt, how) in enumerate(zip(prompts, params, strict=True)):
        engine.add(str(index), prompt, how)
    outputs = run_all(engine)
    return [outputs[str(index)] for index in range(len(prompts))]
