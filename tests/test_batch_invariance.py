"""A sequence's result must not depend on what it is batched with: shown on the embedded model."""

import random
from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import torch

from rho_eos import LLM, DecodeParams
from rho_eos.engine.batch import RowInput, pack
from rho_eos.models.attention import PackedRows
from rho_eos.text.ask import Ask
from rho_problems import TASKS, held_out
from tests.drawn import combinations
from tests.requests import SPECIAL

PROMPTS = [problem.prompt for name in TASKS for problem in held_out(name, 3)]
LENGTHS = {"initial_length": 48, "max_new_tokens": 96}
WAYS = [way for way in combinations(SPECIAL) if way[0] not in ("cal", "released")]
MORE: list[dict[str, Any]] = [
    {},
    {"cache": "window", "cache_window": 4, "cache_steps": 5},
    {"cfg_scale": 1.2},
    {"temperature": 0.7, "seed": 5},
    {"cache": "window", "cfg_scale": 1.2, "temperature": 0.7},
]
PARAMS = {
    "greedy": [DecodeParams(initial_length=32, max_new_tokens=96) for _ in PROMPTS],
    "mixed": [
        DecodeParams(policy=policy, commit=rule, **LENGTHS, **more)
        for _, (policy, rule), more in zip(PROMPTS, cycle(WAYS[::2]), cycle(MORE))
    ],
}


@pytest.fixture(scope="module")
def alone() -> dict[str, list[list[int]]]:
    llm = LLM("tiny", max_rows=1)
    return {
        kind: [output.canvas_token_ids for output in llm.generate(PROMPTS, params)]
        for kind, params in PARAMS.items()
    }


@pytest.mark.parametrize("kind", PARAMS)
@pytest.mark.parametrize("rows", [3, 8, 32])
def test_same_tokens_at_any_batch_size_and_in_any_order(
    alone: dict[str, list[list[int]]], kind: str, rows: int, use_cores: Callable[[int], None]
) -> None:
    use_cores(2)  # they share the rows
    order = list(range(len(PROMPTS)))
    random.Random(rows).shuffle(order)
    outputs = LLM("tiny", max_rows=rows).generate(
        [PROMPTS[index] for index in order], [PARAMS[kind][index] for index in order]
    )
    for index, output in zip(order, outputs, strict=True):
        assert output.canvas_token_ids == alone[kind][index], PARAMS[kind][index]


def test_logits_are_equal_alone_and_packed() -> None:
    llm = LLM("tiny")
    canvas = np.full(32, llm.special.mask)
    rows = [
        RowInput(llm.preparer.prepare(Ask(prompt, p))[0].canvas.prompt, canvas, np.arange(32))
        for prompt, p in zip(PROMPTS, PARAMS["greedy"], strict=True)
    ]

    def logits(sequences: list[RowInput]) -> tuple[torch.Tensor, ...]:
        batch = pack(sequences, shift=0, mask=llm.special.mask)
        with torch.inference_mode():
            packed = llm.model(
                torch.from_numpy(batch.input_ids)[None],
                position_ids=torch.from_numpy(batch.position_ids)[None],
                rows=PackedRows(batch.row_lengths),
            ).logits[0]
        return packed.split(batch.row_lengths)

    for row, together in zip(rows, logits(rows), strict=True):
        assert (logits([row])[0] - together).abs().max() <= 1e-4
