"""Quantised layers: close to what they stand for, the same in any batch, or refused."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from rho_eos.base.errors import UserError
from rho_eos.decoding.params import DecodeParams
from rho_eos.llm import LLM
from rho_eos.models import quantize
from rho_eos.models.quantize import Int4Linear, Int8Linear, check_available
from tests.conftest import DATA
from tests.models.parity import ONE_EACH

LARGEST_ERROR = {"int8": 0.02, "int4": 0.13}  # of the size of the output of a layer
#: The same of all logits. These models are random and 64 wide: trained ones forgive more.
LARGEST_ERROR_OF_LOGITS = {"int8": 0.08, "int4": 0.45}
KINDS = {"int8": Int8Linear, "int4": Int4Linear}


def error(kind: str, linear: nn.Linear, inputs: torch.Tensor) -> float:
    exact = linear(inputs)
    found = KINDS[kind](linear, torch.float32)(inputs)
    assert found.shape == exact.shape and found.dtype == exact.dtype
    return float((found - exact).norm() / exact.norm())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("width", "out"), [(128, 336), (336, 128), (64, 24), (2048, 512)])
@torch.inference_mode()
def test_products_are_close(kind: str, width: int, out: int) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(width, out, bias=width == 64)
    inputs = torch.randn(2, 5, width) * torch.tensor([1e-3, 1.0, 50.0, 1.0, 1.0])[:, None]
    assert error(kind, linear, inputs) < LARGEST_ERROR[kind]
    for row in inputs[0]:  # small positions are not drowned by large ones
        assert error(kind, linear, row[None]) < LARGEST_ERROR[kind]


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_positions_without_content_stay_so(kind: str) -> None:
    linear = nn.Linear(64, 32, bias=False)
    nn.init.zeros_(linear.weight[:4])
    found = KINDS[kind](linear, torch.float32)(torch.zeros(3, 64))
    assert found.abs().max() < 1e-6


def test_without_sums_in_32_bit_weights_have_7(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two products of 255 and 63 fit into 16 bit, so nothing can saturate."""
    monkeypatch.setattr(quantize, "sums_exactly", lambda: False)
    assert Int8Linear(nn.Linear(64, 32), torch.float32).weight.abs().max() == 63
    assert quantize.exact_name("int8", torch.device("cpu")) == "int8, weights of 7 bit"
    assert quantize.exact_name("int4", torch.device("cpu")) == "int4"


# The random a2d-qwen2 has large biases, so that int4 is off by more than the others.
@pytest.mark.parametrize("name", [name for name in ONE_EACH if name != "a2d-qwen2"])
@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_logits_of_the_families(kind: str, name: str) -> None:
    model = LLM(str(DATA / "parity" / name), quantization=kind, mask_token_id=3).model
    mlp = model.model.layers[-1].mlp
    mlps = mlp.experts if hasattr(mlp, "experts") else [mlp]
    assert all(isinstance(each.up_proj, KINDS[kind]) for each in mlps)
    assert isinstance(model.lm_head, nn.Linear)
    io = load_file(DATA / "parity" / name / "io.safetensors")
    for ids, logits, length in zip(io["input_ids"], io["logits"], io["lengths"], strict=True):
        found = model(ids[None, :length]).logits[0]
        logits = logits[:length]
        assert (found - logits).norm() / logits.norm() < LARGEST_ERROR_OF_LOGITS[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_does_not_notice_its_batch_mates(kind: str) -> None:
    prompts = ["What is 3 + 4?", "Mia has 8 plums. 1) buys 6. How many are there now?", "What?"]
    params = DecodeParams(max_new_tokens=64)
    llm = LLM("tiny", quantization=kind)
    together = llm.generate(prompts, params)
    alone = [llm.generate([prompt], params)[0] for prompt in prompts]
    assert [each.token_ids for each in together] == [each.token_ids for each in alone]


def test_only_the_layers_are_quantised_and_the_type_asked_for_is_kept(
    byte_checkpoint: Path,
) -> None:
    model = LLM(str(byte_checkpoint), quantization="int8", dtype="bfloat16").model
    assert model.lm_head.weight.dtype == model.model.embed_tokens.weight.dtype == torch.bfloat16
    assert model.model.layers[0].self_attn.q_proj.weight.dtype == torch.int8


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("mps", "on mps takes only none"),
        ("cuda", r"needs torchao: pip install 'rho-eos\[quant\]'"),
    ],
)
def test_where_a_format_cannot_be_had_is_one_sentence(
    device: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantize, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=message):
        check_available("int8", torch.device(device))
    check_available("none", torch.device(device))
