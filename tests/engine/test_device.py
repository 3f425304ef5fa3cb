"""What a device is asked to do in a step: nothing in float64, and to be waited for once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rho_eos.decoding.params import DecodeParams
from rho_eos.engine.request import Handle
from rho_eos.engine.row import Row
from rho_eos.engine.runner import ModelRunner
from rho_eos.engine.scoring import Masked, score
from rho_eos.models import attention
from tests.reference.bridge import SPECIAL
from tests.reference.random_llada import random_llada
from tests.requests import request as request_for

PARAMS = [
    DecodeParams(),
    DecodeParams(policy="daedal"),
    DecodeParams(cfg_scale=1.0, min_new_tokens=10),
    DecodeParams(temperature=0.7, top_p=0.9, top_k=7, seed=3),
]


class Watch(TorchDispatchMode):
    """Notes tensors that MPS does not have, and operations that make the host wait."""

    def __init__(self) -> None:
        super().__init__()
        self.wide: list[str] = []
        self.waits: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, result)):
            if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float64:
                self.wide.append(str(func))
        if func.overloadpacket in (torch.ops.aten._local_scalar_dense, torch.ops.aten.nonzero):
            self.waits.append(str(func))
        return result


def rows() -> list[Row]:
    return [
        Row(Handle(request_for(str(number), list(range(4, 9 + number)), params)))
        for number, params in enumerate(PARAMS)
    ]


@pytest.fixture(autouse=True)
def one_core(use_cores: Callable[[int], None]) -> None:
    use_cores(1)  # operations are seen in this thread only


def test_a_step_has_no_float64_and_one_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    transfers = 0
    to_host = torch.Tensor.cpu

    def counted(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal transfers
        transfers += 1
        return to_host(tensor)

    runner = ModelRunner(random_llada(seed=1), SPECIAL)
    monkeypatch.setattr(torch.Tensor, "cpu", counted)
    with Watch() as seen:
        runner.predict(rows())
    assert seen.wide == [] and seen.waits == []
    assert transfers == 1


def test_likelihoods_have_no_float64() -> None:
    runner = ModelRunner(random_llada(seed=1), SPECIAL)
    asked = Masked(np.arange(4, 8), np.arange(8, 12), np.array([True, False, True, True]))
    with Watch() as seen:
        [scores] = score(runner, [asked])
    assert seen.wide == [] and scores.dtype == np.float64 and len(scores) == 3


def test_where_the_varlen_kernel_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def wanted(
        capability: tuple[int, int], hip: str | None = None, dtype: Any = torch.bfloat16
    ) -> bool:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        monkeypatch.setattr(torch.version, "hip", hip)
        return attention.wants_varlen_kernel(torch.device("cuda"), dtype)

    assert wanted((8, 0)) and wanted((9, 0))
    assert not wanted((7, 5))
    assert not wanted((9, 0), hip="6.4")
    assert not wanted((9, 0), dtype=torch.float32)
    assert not attention.wants_varlen_kernel(torch.device("cpu"), torch.bfloat16)
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", lambda query, key: None)
    assert not wanted((9, 0))  # a torch whose kernel has not all that we pass
