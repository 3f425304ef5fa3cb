"""`rho-eos info --check`: what it tries on this CPU and the pretended GPU, and what it notices."""

import json
from collections.abc import Callable

import pytest
import torch

from rho_eos.doctor import measures, parity
from rho_eos.doctor.page import as_text, examine
from rho_eos.models import attention
from rho_eos.models.family import FAMILIES
from tests.evals.command import Command
from tests.gpu.pretend import pretend_gpu

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def briefly(monkeypatch: pytest.MonkeyPatch, use_cores: Callable[[int], None]) -> None:
    use_cores(1)
    monkeypatch.setattr(measures, "_SECONDS", 0.001)
    monkeypatch.setattr(measures, "WIDTH", 128)


def test_this_machine_is_tried_and_nothing_is_wrong(command: Command) -> None:
    done = command("info", "--check", "--json")
    page = json.loads(done.out)["check"]
    assert done.code == 0 and page["passed"] and page["complete"] and page["seconds"] < 60
    names = [each["name"] for each in page["checks"]]
    for family in FAMILIES.all():
        for how in ("float32", "bfloat16", "int8", "int4"):
            assert f"{family}, {how}" in names
    assert all(each["passed"] for each in page["checks"]), page["checks"]
    assert all(value > 0 for value in page["measured"].values())
    text = as_text(page)
    assert torch.__version__ in text and "BAD" not in text and "int4" in text


def test_a_gpu_is_tried_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a pretended GPU")
    few = {name: FAMILIES.find(name) for name in ("llada", "sdar", "llada-moe")}
    monkeypatch.setattr(FAMILIES, "all", lambda: few)
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        with pretend_gpu(capability=(7, 5)):
            page = examine(CUDA)
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
    assert page["passed"] and page["complete"], as_text(page)
    assert {"llada, float16", "llada-moe, int8"} <= {each["name"] for each in page["checks"]}
    assert not page["kernels"]["products in bfloat16"] and not page["kernels"]["CUDA graphs"]
    assert page["machine"]["gpu"] == "a pretended GPU"
    assert any("emulated" in each for each in page["slow"])
    json.dumps(page)


def test_wrong_numbers_are_noticed_and_the_command_fails(
    monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    def wrong(query: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        return query

    monkeypatch.setattr(attention, "scaled_dot_product_attention", wrong)
    found = next(parity.families(CPU))
    assert found.passed is False
    monkeypatch.setattr(parity, "families", lambda _: iter([found]))
    monkeypatch.setattr(parity, "tokens", lambda _: iter(()))
    done = command("info", "--check")
    assert done.code == 1 and f"BAD   {found.name}" in done.out


def test_what_raises_is_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_: object, **__: object) -> None:
        raise RuntimeError("no kernel image is available")

    monkeypatch.setattr(attention, "scaled_dot_product_attention", raising)
    check = next(parity.families(CPU))
    assert check.passed is False and "no kernel image" in check.found


def test_it_ends_when_its_time_is_over() -> None:
    page = examine(CPU, seconds=0.0)
    assert not page["complete"] and len(page["checks"]) == 1
