"""Quantised layers on the pretended GPU: the numbers of a CPU, few kernels, and nothing waited for.

The CPU's own quantised layers are held to floats in tests/models/test_quantize.py.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForMaskedLM

import rho_eos.models.auto  # noqa: F401  registers the families
from rho_eos.base.errors import UserError
from rho_eos.engine.runner import ModelRunner
from rho_eos.models.layer import JoinedBytes, join_products
from rho_eos.models.quantize import KINDS, check_available, quantize, sums_exactly
from tests.gpu.pretend import on_gpu, pretend_gpu
from tests.gpu.steps import SPECIAL, ledgers, rows
from tests.models.parity import PARITY
from tests.reference.random_llada import random_llada

CUDA, BF16 = torch.device("cuda", 0), torch.bfloat16
#: Kernels of one linear layer, with padding and bias; int4 widens its weight first.
KERNELS = {"int8": 11, "int4": 16}


@pytest.fixture(autouse=True)
def one_core(use_cores: Callable[[int], None]) -> None:
    use_cores(1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("count", "width", "out"), [(1, 64, 24), (16, 100, 36), (17, 1088, 40), (40, 64, 24)]
)
@torch.inference_mode()
def test_a_layer_gives_the_numbers_of_a_cpu(kind: str, count: int, width: int, out: int) -> None:
    torch.manual_seed(count)
    linear = nn.Linear(width, out).bfloat16().requires_grad_(False)
    inputs = torch.randn(1, count, width).bfloat16()
    with pretend_gpu() as gpu:
        layer = KINDS[kind](linear, BF16, CUDA)
        moved = inputs.to(CUDA)
        ledger = gpu.new_ledger()
        found = layer(moved)
        asked = (ledger.syncs, len(ledger.kernels))
        found = found.cpu()
    exact = linear(inputs)
    assert (found - exact).norm() / exact.norm() < {"int8": 0.03, "int4": 0.15}[kind]
    assert asked[0] == 0 and asked[1] <= KERNELS[kind], ledger.by_line()
    if sums_exactly():  # else a CPU's weights have fewer bits
        assert torch.equal(found, KINDS[kind](linear, BF16)(inputs))


@pytest.mark.parametrize(
    ("cache", "kind", "stored"),
    [("none", "int4", torch.float32), ("window", "int4", torch.float16), ("window", "int8", BF16)],
)
def test_a_step_waits_once_whatever_the_checkpoint_is_stored_in(
    cache: str, kind: str, stored: torch.dtype
) -> None:
    layers = 3
    with pretend_gpu() as gpu:
        model = random_llada(seed=1, layers=layers).to(stored)
        quantize(model, kind, CUDA, BF16)
        join_products(on_gpu(model))
        runner = ModelRunner(model, SPECIAL)
        _, *steps = ledgers(gpu, runner, rows(8, cache=cache, early_stop=False), 3)
    for step in steps:
        assert step.syncs == 1 and torch.float64 not in step.dtypes, step.by_line()
        assert step.launches("models/quantize") <= 4 * KERNELS[kind] * layers, step.by_line()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_layers_with_one_input_are_one_product(kind: str, bias: bool) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(1, 20, 64).bfloat16()
    with pretend_gpu() as gpu, torch.inference_mode(False):
        plain = [nn.Linear(64, out, bias=bias).bfloat16() for out in (32, 16, 40)]
        apart = [KINDS[kind](each.requires_grad_(False), BF16, CUDA) for each in plain]
        moved = inputs.to(CUDA)
        wanted = [layer(moved).cpu() for layer in apart]
        joined = JoinedBytes(apart)
        ledger = gpu.new_ledger()
        found = joined(moved)
        assert len(ledger.kernels) <= KERNELS[kind] and ledger.syncs == 0, ledger.by_line()
        assert torch.equal(found.cpu(), torch.cat(wanted, -1))
        assert joined.fits(*apart), "each is a view of the whole"
        after = [layer(moved).cpu() for layer in apart]
    assert all(torch.equal(a, b) for a, b in zip(after, wanted, strict=True))


@pytest.mark.parametrize(
    ("name", "kind"), [("llada-moe", "int8"), ("sdar-moe", "int4"), ("llada2-moe", "int8")]
)
@torch.inference_mode()
def test_experts_are_one_grouped_product_and_their_choice_is_not_waited_for(
    name: str, kind: str
) -> None:
    def loaded() -> Any:
        made = AutoModelForMaskedLM.from_pretrained(PARITY / name)
        return type(made).separate.from_pretrained(PARITY / name).eval().bfloat16()

    hidden = torch.randn(1, 40, loaded().config.hidden_size).bfloat16()
    wanted = (mlp := loaded().model.layers[-1].mlp)(hidden)
    with pretend_gpu() as gpu:
        model = loaded()
        quantize(model, kind, CUDA, BF16)
        mlp = on_gpu(model).model.layers[-1].mlp
        moved = hidden.to(CUDA)
        ledger = gpu.new_ledger()
        found = mlp(moved)
        assert ledger.syncs == 0 and len(ledger.kernels) <= 130, ledger.by_line()
        names = [each.name for each in ledger.kernels]
        assert names.count("_grouped_mm") == 2
        found = found.cpu()
    error = (found - wanted).norm() / wanted.norm()
    assert error < {"int8": 0.03, "int4": 0.25}[kind]


def test_a_gpu_that_multiplies_no_bytes_is_refused_before_loading() -> None:
    with pretend_gpu(capability=(7, 0)), pytest.raises(UserError, match=r"capability 7\.0"):
        check_available("int8", CUDA)
    with pretend_gpu(capability=(7, 5)):
        check_available("int4", CUDA)
