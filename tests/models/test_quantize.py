"""Layers computed in other ways: experts merged, looped or one by one, and quantised weights."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModelForMaskedLM

from rho_eos.base.errors import UserError
from rho_eos.decoding.params import DecodeParams
from rho_eos.engine.store import Stores
from rho_eos.llm import LLM
from rho_eos.models import quantize
from rho_eos.models.families.llada2_moe import LLaDA2MoEConfig
from rho_eos.models.families.sdar import SDARConfig
from rho_eos.models.layers.llada import LLaDAForMaskedLM
from rho_eos.models.quantize import Int8Linear, check_available
from tests.conftest import DATA
from tests.models.parity import (
    FAMILY,
    ONE_EACH,
    ONE_EACH_IN_BLOCKS,
    PARITY,
    changed,
    in_blocks,
    recorded,
)

WITH_EXPERTS = ["llada-moe", "llada-moe-bias", "sdar-moe", "llada2-moe", "llada2-moe-b32"]


def loaded(name: str, **how: Any) -> Any:
    return AutoModelForMaskedLM.from_pretrained(PARITY / name, **how).eval()


@pytest.mark.parametrize("stated", [True, False, None])
@pytest.mark.parametrize("name", ["llada-moe", "llada-moe-bias", "llada2-moe"])
@torch.inference_mode()
def test_norm_topk_prob_stands_in_configs_and_the_published_code_does_not_read_it(
    tmp_path: Path, name: str, stated: bool | None
) -> None:
    model = AutoModelForMaskedLM.from_pretrained(changed(tmp_path, name, norm_topk_prob=stated))
    rows, expected = recorded(name)
    found = model(rows[0][None], **in_blocks(name, 0)).logits[0]
    torch.testing.assert_close(found, expected[0], rtol=0, atol=1e-4)


@torch.inference_mode()
def test_a_single_expert_of_llada2_keeps_its_weight(tmp_path: Path) -> None:
    folder = changed(tmp_path, "llada2-moe", num_experts_per_tok=1)
    gate = AutoModelForMaskedLM.from_pretrained(folder).model.layers[-1].mlp.gate
    hidden = torch.randn(5, 48)
    _, weights, experts = gate(hidden)
    scores = (hidden @ gate.weight.T).sigmoid()
    torch.testing.assert_close(weights, 2.5 * scores.gather(1, experts))


@pytest.mark.parametrize("name", WITH_EXPERTS)
@torch.inference_mode()
def test_merged_looped_and_separate_experts_give_the_same(name: str) -> None:
    rows, expected = recorded(name)
    told = in_blocks(name, 0)
    models = {"merged": loaded(name), "looped": loaded(name, experts_implementation="eager")}
    models["separate"] = type(models["merged"]).separate.from_pretrained(PARITY / name).eval()
    assert models["merged"].config._experts_implementation == "grouped_mm"
    assert models["separate"].model.layers[-1].mlp.experts[3].up_proj.weight.ndim == 2
    for how, model in models.items():
        found = model(rows[0][None], **told).logits[0]
        torch.testing.assert_close(found, expected[0], rtol=0, atol=1e-4, msg=how)


@pytest.mark.parametrize("quantization", ["none", "int8"])
@pytest.mark.parametrize("name", ["sdar-moe", "llada2-moe"])
@torch.inference_mode()
def test_in_half_precision_the_experts_run_apart_too(name: str, quantization: Any) -> None:
    """As on a CPU that computes in float32 what is kept in 16 bit, and with small weights."""
    rows, expected = recorded(name)
    model = LLM(
        str(PARITY / name),
        mask_token_id=3,
        eos_token_id=2,
        dtype="bfloat16",
        quantization=quantization,
    ).model
    found = model(rows[0][None], **in_blocks(name, 0)).logits[0].float()
    each = (found - expected[0]).norm(dim=-1) / expected[0].norm(dim=-1)
    assert each.median() < 0.1


@pytest.mark.parametrize(
    ("name", "bias"), [("llada-moe-bias", "expert_bias"), ("llada2-moe", "e_score_correction_bias")]
)
def test_the_bias_of_the_choice_stays_in_float32(name: str, bias: str) -> None:
    gate = loaded(name, dtype=torch.bfloat16).model.layers[1].mlp.gate
    assert gate.weight.dtype == torch.bfloat16 and getattr(gate, bias).dtype == torch.float32


def test_experts_do_not_load_as_the_dense_family() -> None:
    with pytest.raises(UserError, match="LLaDAForMaskedLM takes a LLaDAConfig"):
        LLaDAForMaskedLM.from_pretrained(PARITY / "llada-moe")


def test_keys_and_values_take_what_the_published_sizes_say() -> None:
    sdar_8b = SDARConfig(
        hidden_size=4096, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8
    )
    llada2_mini = LLaDA2MoEConfig(
        hidden_size=2048, num_hidden_layers=20, num_attention_heads=16, num_key_value_heads=4
    )
    for config, kilobytes in ((sdar_8b, 144), (llada2_mini, 40)):
        model = SimpleNamespace(config=config, dtype=torch.bfloat16, device=torch.device("cpu"))
        assert Stores(model, 64).bytes_per_position == kilobytes * 1024


LARGEST_ERROR = {"int8": 0.02, "int4": 0.13}  # of the size of the output of a layer
#: The same of all logits. These models are random and 64 wide: trained ones forgive more.
LARGEST_ERROR_OF_LOGITS = {"int8": 0.08, "int4": 0.45}
#: A position that is routed to another expert is off by more, and there are many in long rows.
ROUTED_ELSEWHERE = 1.5
KINDS = quantize.KINDS


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
    assert "weights of 7 bit" in quantize.exact_name("int4", torch.device("cpu"))


# The random a2d-qwen2 has large biases, so that int4 is off by more than the others.
@pytest.mark.parametrize(
    "name", [*(name for name in ONE_EACH if name != "a2d-qwen2"), *ONE_EACH_IN_BLOCKS]
)
@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_logits_of_the_families(kind: str, name: str) -> None:
    model = LLM(
        str(DATA / "parity" / name), quantization=kind, mask_token_id=3, eos_token_id=2
    ).model
    mlp = model.model.layers[-1].mlp
    mlps = mlp.experts if hasattr(mlp, "experts") else [mlp]
    assert all(isinstance(each.up_proj, KINDS[kind]) for each in mlps)
    assert isinstance(model.lm_head, nn.Linear)
    io = load_file(DATA / "parity" / name / "io.safetensors")
    largest = LARGEST_ERROR_OF_LOGITS[kind]
    if FAMILY[name] in ("llada2_moe", "sdar_moe"):
        largest *= ROUTED_ELSEWHERE
    rows = zip(io["input_ids"], io["logits"], io["lengths"], strict=True)
    for index, (ids, logits, length) in enumerate(rows):
        found = model(ids[None, :length], **in_blocks(name, index)).logits[0]
        logits = logits[:length]
        assert (found - logits).norm() / logits.norm() < largest


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


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_what_is_saved_of_a_layer_is_all_of_it(kind: str) -> None:
    one, other = (KINDS[kind](nn.Linear(96, 40), torch.float32) for _ in range(2))
    inputs = torch.randn(3, 96)
    assert not torch.equal(one(inputs), other(inputs))
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(inputs), other(inputs))


def test_where_a_format_cannot_be_had_is_one_sentence() -> None:
    with pytest.raises(UserError, match="on mps takes only none"):
        check_available("int8", torch.device("mps"))
    check_available("none", torch.device("mps"))
