"""Compiled layers and batches of sizes that recur: the same predictions."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rho_eos import LLM, DecodeParams
from rho_eos.engine import compiled
from rho_eos.engine.batch import RowInput, pack
from rho_eos.engine.compiled import filled, rounded

MASK = 3


@given(st.integers(1, 100_000))
def test_sizes_are_few_and_little_larger(positions: int) -> None:
    size = rounded(positions)
    assert positions <= size < positions + max(64, positions / 8 + 1)
    assert rounded(size) == size


def test_there_are_few_sizes() -> None:
    assert len({rounded(positions) for positions in range(1, 4097)}) <= 32


@given(st.lists(st.tuples(st.integers(1, 70), st.integers(1, 70)), min_size=1, max_size=4))
def test_the_row_that_fills_up_is_behind_all_others(lengths: list[tuple[int, int]]) -> None:
    rows = [
        RowInput(np.full(prompt, 7), np.full(canvas, MASK), np.arange(canvas))
        for prompt, canvas in lengths
    ]
    batch = pack(rows, 0, MASK)
    more = filled(batch, MASK)
    n = len(batch.input_ids)
    assert len(more.input_ids) == len(more.position_ids) == sum(more.row_lengths) == rounded(n)
    assert np.array_equal(more.input_ids[:n], batch.input_ids)
    assert np.array_equal(more.read_at, batch.read_at)
    assert more.row_lengths[: len(rows)] == batch.row_lengths


@pytest.mark.parametrize("cache", ["none", "window"])
def test_a_compiled_model_gives_the_same_answers(
    cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dynamo's graphs and torch's own kernels, so that every number is the same."""
    graphs = 0

    def counted(graph: Any, inputs: list[torch.Tensor]) -> Any:
        nonlocal graphs
        graphs += 1
        return graph.forward

    inductor = compiled.compile_layers
    monkeypatch.setattr("rho_eos.engine.runner.compile_layers", lambda m: inductor(m, counted))
    prompts = ["Mia has 8 plums. 1) buys 6. How many are there now?", "What is 3 + 4?"]
    params = DecodeParams(max_new_tokens=64, threshold=0.999, cache=cache)
    plain = LLM("tiny").generate(prompts, params)
    outputs = LLM("tiny", compile=True).generate(prompts, params)
    assert [each.text for each in outputs] == [each.text for each in plain]
    assert graphs > 0, "nothing was compiled"
