"""No (positions x vocabulary) tensor exists, whatever is asked for: logits come in chunks."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rho_eos.decoding.params import DecodeParams
from rho_eos.engine.request import Handle
from rho_eos.engine.row import Row
from rho_eos.engine.runner import ModelRunner
from tests.reference.bridge import SPECIAL
from tests.reference.cases import SameEverywhere
from tests.requests import request as request_for

VOCABULARY = 50_000
MEGABYTE = 2**20


class LargestTensor(TorchDispatchMode):
    """Remembers the most elements that any operation returned in one tensor."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.numel = max(self.numel, leaf.numel())
        return result


def row_of(params: DecodeParams) -> Row:
    return Row(Handle(request_for("", list(range(4, 12)), params)))


@pytest.mark.parametrize(
    "params",
    [
        DecodeParams(),
        DecodeParams(policy="daedal"),  # needs the whole canvas
        DecodeParams(cfg_scale=1.0),
        DecodeParams(min_new_tokens=10),
        DecodeParams(temperature=1.0, initial_length=16),
    ],
    ids=["greedy", "whole canvas", "guided", "minimum length", "sampled"],
)
def test_logits_are_held_in_chunks_of_the_given_size(
    params: DecodeParams, use_cores: Callable[[int], None]
) -> None:
    use_cores(1)  # tensors are seen in this thread only
    model = SameEverywhere([0.0] * VOCABULARY)
    runner = ModelRunner(model, SPECIAL, logits_megabytes=1)
    rows = [row_of(params) for _ in range(3)]
    with LargestTensor() as largest:
        predictions = runner.predict(rows)
    assert sum(len(p.positions) for p in predictions) == 3 * params.first_length
    assert 0 < largest.numel <= MEGABYTE / 4


def test_the_chunk_size_changes_no_prediction() -> None:
    torch.manual_seed(0)
    logits = torch.randn(VOCABULARY).tolist()
    rows = [row_of(DecodeParams())]
    small, large = (
        ModelRunner(SameEverywhere(logits), SPECIAL, logits_megabytes=size).predict(rows)[0]
        for size in (1, 512)
    )
    assert small.token.tolist() == large.token.tolist()
    assert small.confidence == pytest.approx(large.confidence)
    assert small.eos_probability == pytest.approx(large.eos_probability)
