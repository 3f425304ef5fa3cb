"""In which precision a model runs: as its weights are stored, where the device is fast in it."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from rho_eos.config import EngineConfig
from rho_eos.llm import LLM
from rho_eos.models import placement, widening
from rho_eos.models.loading import open_checkpoint
from rho_eos.models.placement import stored_dtype, ways_to_compute
from tests.checkpoints import write_checkpoint

CPU, CUDA, MPS = torch.device("cpu"), torch.device("cuda"), torch.device("mps")
F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16


@pytest.fixture
def stored_in_bfloat16(tmp_path: Path) -> Path:
    folder = write_checkpoint(tmp_path)
    weights = load_file(folder / "model.safetensors")
    some = {name: weight.bfloat16() for name, weight in weights.items()}
    some["model.transformer.ln_f.weight"] = weights["model.transformer.ln_f.weight"].float()
    save_file(some, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def can(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(placement, "_capabilities", lambda: dict.fromkeys(names, True))


def test_most_of_the_weights_decide_what_a_checkpoint_is_stored_in(
    stored_in_bfloat16: Path,
) -> None:
    found = open_checkpoint(EngineConfig(model=str(stored_in_bfloat16)))
    assert found.stored_dtypes == ("BF16", "F32")
    assert stored_dtype(found) == BF16


@pytest.mark.parametrize(
    ("asked", "device", "stored", "ways"),
    [
        ("auto", CUDA, BF16, [(BF16, BF16)]),
        ("auto", MPS, F16, [(F16, F16)]),
        ("auto", MPS, torch.float64, [(F32, F32)]),
        ("auto", CPU, F32, [(F32, F32)]),
        ("auto", CPU, BF16, [(F32, F32), (BF16, F32)]),
        ("auto", CPU, F16, [(F32, F32), (F16, F32)]),
        ("float32", CPU, BF16, [(F32, F32), (BF16, F32)]),
        ("float32", CUDA, BF16, [(F32, F32)]),
        ("bfloat16", CPU, BF16, [(F32, F32), (BF16, F32)]),
        ("bfloat16", CPU, F32, [(BF16, F32)]),  # to be rounded, so never kept as it is stored
    ],
)
def test_on_a_cpu_without_16_bit_arithmetic(
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
    device: torch.device,
    stored: torch.dtype,
    ways: list[tuple[torch.dtype, torch.dtype]],
) -> None:
    can(monkeypatch, "avx2")
    assert ways_to_compute(asked, device, stored) == ways


def test_on_a_cpu_with_16_bit_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    can(monkeypatch, "avx512_bf16")
    assert ways_to_compute("auto", CPU, BF16) == [(BF16, BF16)]
    assert ways_to_compute("auto", CPU, F16)[0] == (F32, F32)
    can(monkeypatch, "bf16")  # what ARM calls it
    assert ways_to_compute("auto", CPU, BF16) == [(BF16, BF16)]


def test_widened_layers_compute_what_wide_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widening, "PIECE", 4 * 24 * 5)  # so that a weight comes in pieces
    torch.manual_seed(0)
    narrow = nn.Linear(24, 17).bfloat16()
    wide = nn.Linear(24, 17)
    wide.load_state_dict({name: value.float() for name, value in narrow.state_dict().items()})
    inputs = torch.randn(3, 7, 24)
    torch.testing.assert_close(widening.WideLinear(narrow, F32)(inputs), wide(inputs))


def test_weights_kept_in_16_bit_give_the_text_of_widened_ones(
    stored_in_bfloat16: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where they lie differs: so an evaluation may go on where less memory is free."""
    can(monkeypatch, "avx2")
    roomy = LLM(str(stored_in_bfloat16))
    needed = roomy.placement.needed
    monkeypatch.setattr("rho_eos.models.placement.free_memory", lambda device: needed - 1)
    tight = LLM(str(stored_in_bfloat16))
    assert (roomy.placement.weights, roomy.placement.compute) == (F32, F32)
    assert (tight.placement.weights, tight.placement.compute) == (BF16, F32)
    assert tight.placement.identity() == roomy.placement.identity()
    assert tight.placement.identity()["dtype"] == "bfloat16"
    assert tight.model.model.layers[0].mlp.up_proj.weight.dtype == BF16
    assert tight.model.model.norm.weight.dtype == F32
    texts = [llm.generate(["hello", "and more"]) for llm in (roomy, tight)]
    assert [each.token_ids for each in texts[0]] == [each.token_ids for each in texts[1]]
