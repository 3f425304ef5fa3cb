"""What a step asks of a GPU: kernels, waits and bytes, counted on the pretended one."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from rho_eos.decoding.blocks import Blocks
from rho_eos.engine.runner import ModelRunner
from rho_eos.engine.scoring import Masked, score
from tests.gpu.ledger import Ledger
from tests.gpu.pretend import on_gpu, pretend_gpu
from tests.gpu.steps import SPECIAL, ledgers, loaded, rows
from tests.models.parity import BLOCKS, FAMILY, ONE_EACH, ONE_EACH_IN_BLOCKS
from tests.reference.random_llada import random_llada

#: A canvas of 96 positions that keeps its length, four of which are committed in a step.
FIXED: dict[str, Any] = {
    "policy": "fixed",
    "initial_length": 96,
    "max_new_tokens": 96,
    "steps": 24,
    "early_stop": False,
}
#: One token a step in blocks of 8 positions.
IN_BLOCKS: dict[str, Any] = {
    "policy": "blocks",
    "cache": "blocks",
    "max_new_tokens": 32,
    "threshold": 1.0,
}
LAYER = 17  # kernels of a layer, however many rows there are
EXPERTS = 40  # more, where the MLP is many experts
REST = 16  # of the stack: embedding, rotation, what is read, the last norm
SAMPLED = {"temperature": 0.7, "top_p": 0.9, "top_k": 7, "seed": 3, "logprobs": 2}
OPTIONS: list[dict[str, Any]] = [
    {},
    SAMPLED,
    {"cfg_scale": 1.0, "min_new_tokens": 10},
    {"commit": "wino"},
]


@pytest.fixture(autouse=True)
def one_core(use_cores: Callable[[int], None]) -> None:
    use_cores(1)


def in_layers(step: Ledger) -> int:
    return step.launches(("models/", "engine/store"))


@pytest.mark.parametrize("cache", ["none", "window"])
@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("more", OPTIONS, ids=str)
def test_a_step(cache: str, count: int, more: dict[str, Any]) -> None:
    layers = 4
    with pretend_gpu() as gpu:
        runner = loaded(random_llada(seed=1, layers=layers).to(torch.bfloat16))
        params = {**FIXED, **more, "cache": cache}
        if "commit" in more:
            del params["steps"]
        first, *steps = ledgers(gpu, runner, rows(count, **params), 3)
    for step in (first, *steps):
        assert step.syncs == 1 == len(step.to_host), step.by_line()  # for what the policies read
        assert torch.float64 not in step.dtypes
    mixed = cache == "window" and more.get("commit") == "wino"  # probes are not kept
    for step in steps:
        assert in_layers(step) <= (LAYER + 9 * mixed) * layers + REST, step.by_line()
        read = 96 * count * (2 if more.get("commit") == "wino" else 1)
        assert sum(each.bytes for each in step.to_host) <= 64 * read
        sent = sum(each.bytes for each in step.to_device)
        assert sent <= 100 * read * (3 if "cfg_scale" in more else 2), step.by_line()


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("name", [*ONE_EACH, *ONE_EACH_IN_BLOCKS])
@pytest.mark.parametrize("cache", ["none", "window", "blocks"])
def test_kernels_of_a_layer_in_every_family(
    parity_model: Callable[[str], Any], name: str, cache: str, count: int
) -> None:
    """In half precision, from the second step on: the first one computes the prompt."""
    if (cache == "blocks") != (name in BLOCKS):
        return
    model = parity_model(name)
    layers, experts = model.config.num_hidden_layers, "moe" in FAMILY[name]
    with pretend_gpu() as gpu:
        runner = loaded(copy.deepcopy(model).to(torch.bfloat16))
        if cache == "blocks":
            opens = FAMILY[name] == "fast_dllm_qwen"
            batch = rows(count, blocks=Blocks(8, opens_with_store=opens), **IN_BLOCKS)
        else:
            batch = rows(count, **FIXED, cache=cache)
        _, *steps = ledgers(gpu, runner, batch, 3)
    for step in steps:
        assert in_layers(step) <= (LAYER + EXPERTS * experts) * layers + REST, step.by_line()
        assert step.syncs == 1, step.by_line()


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_likelihoods(kind: Any) -> None:
    asked = Masked(np.arange(4, 8), np.arange(8, 12), np.array([True, False, True, True]))
    with pretend_gpu(kind) as gpu:
        runner = loaded(random_llada(seed=1))
        gpu.new_ledger()
        scores = score(runner, [asked])[0].logprobs
        asked_for = gpu.ledger
    assert torch.float64 not in asked_for.dtypes and len(asked_for.to_host) == 1
    assert kind == "mps" or asked_for.syncs == 1, asked_for.by_line()
    wanted = score(ModelRunner(random_llada(seed=1), SPECIAL), [asked])[0].logprobs
    assert scores.dtype == np.float64 and np.allclose(scores, wanted, atol=1e-5)


def test_where_the_varlen_kernel_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def uses_it(
        capability: tuple[int, int] = (8, 0), kind: Any = "cuda", dtype: Any = torch.bfloat16
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
