"""What a step asks of a GPU: kernels, waits and bytes, counted on the pretended one."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from rho_eos.engine.runner import ModelRunner
from rho_eos.engine.scoring import Masked, score
from tests.gpu.pretend import on_gpu, pretend_gpu
from tests.gpu.steps import SPECIAL, ledgers, rows
from tests.reference.random_llada import random_llada

LAYERS = 4
#: A canvas of 96 positions that keeps its length, four of which are committed in a step.
FIXED = {
    "policy": "fixed",
    "initial_length": 96,
    "max_new_tokens": 96,
    "steps": 24,
    "early_stop": False,
}
LAYER = 68  # kernels, with 8 rows in the window cache, each twice
SAMPLED = {"temperature": 0.7, "top_p": 0.9, "top_k": 7, "seed": 3, "logprobs": 2}


@pytest.fixture(autouse=True)
def one_core(use_cores: Callable[[int], None]) -> None:
    use_cores(1)


@pytest.mark.parametrize("cache", ["none", "window"])
@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("more", [{}, SAMPLED, {"cfg_scale": 1.0, "min_new_tokens": 10}], ids=str)
def test_a_step(cache: str, count: int, more: dict[str, object]) -> None:
    with pretend_gpu() as gpu:
        model = random_llada(seed=1, layers=LAYERS).to(torch.bfloat16)
        runner = ModelRunner(on_gpu(model), SPECIAL)
        first, *steps = ledgers(gpu, runner, rows(count, **FIXED, **more, cache=cache), 3)
    for step in (first, *steps):
        assert step.syncs == 1, step.by_line()  # for what the policies read
        assert len(step.to_host) == 1
        assert torch.float64 not in step.dtypes
    for step in steps:
        layers = step.launches(("models/", "engine/store"))
        assert layers <= LAYER * LAYERS + 12, step.by_line()
        assert sum(each.bytes for each in step.to_host) <= 64 * 96 * count


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_likelihoods(kind: str) -> None:
    asked = Masked(np.arange(4, 8), np.arange(8, 12), np.array([True, False, True, True]))
    with pretend_gpu(kind) as gpu:
        runner = ModelRunner(on_gpu(random_llada(seed=1)), SPECIAL)
        gpu.new_ledger()
        [scores] = score(runner, [asked])
        copies = gpu.ledger.to_host
    assert torch.float64 not in gpu.ledger.dtypes and len(copies) == 1
    [wanted] = score(ModelRunner(random_llada(seed=1), SPECIAL), [asked])
    assert scores.dtype == np.float64 and np.allclose(scores, wanted, atol=1e-5)


def test_where_the_varlen_kernel_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def uses_it(
        capability: tuple[int, int] = (8, 0),
        kind: str = "cuda",
        dtype: torch.dtype = torch.bfloat16,
    ) -> bool:
        with pretend_gpu(kind, capability) as gpu:
            runner = ModelRunner(on_gpu(random_llada(seed=1).to(dtype)), SPECIAL)
            [step] = ledgers(gpu, runner, rows(2, **FIXED), 1)
        return "varlen_attn" in {each.name for each in step.kernels}

    assert uses_it((8, 0)) and uses_it((9, 0))
    assert not uses_it((7, 5))
    assert not uses_it(dtype=torch.float32)
    assert not uses_it(kind="mps")
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert not uses_it()
    monkeypatch.undo()
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", lambda query, key: None)
    assert not uses_it()  # a torch whose kernel has not all that we pass
