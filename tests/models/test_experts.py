"""LLaDA-MoE: the router's rule, one grouped product for all experts, strictness about each."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import silu, softmax
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

from rho_eos.base.errors import UserError
from rho_eos.models.families.llada_moe import LLaDAMoEConfig
from rho_eos.models.layers.llada import LLaDAForMaskedLM
from rho_eos.models.layers.llada_moe import LLaDAMoEForMaskedLM, SeparateLLaDAMoEForMaskedLM
from tests.conftest import DATA

PARITY = DATA / "parity"
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "dense_intermediate_size": 48,
    "expert_intermediate_size": 16,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "vocab_size": 40,
}


def small(**fields: Any) -> LLaDAMoEForMaskedLM:
    torch.manual_seed(0)
    return LLaDAMoEForMaskedLM(LLaDAMoEConfig(**SIZES | {"initializer_range": 0.3} | fields)).eval()


def by_hand(block: Any, hidden: torch.Tensor, top: int, bias: torch.Tensor | None) -> torch.Tensor:
    """The rule as it is described, one position and one expert after the other."""
    out = torch.zeros_like(hidden)
    for at, x in enumerate(hidden):
        scores = softmax(block.gate.weight @ x, dim=-1)
        scores = scores if bias is None else scores + bias
        for expert in scores.argsort(descending=True)[:top]:
            gate, up = (block.experts.gate_up_proj[expert] @ x).chunk(2)
            out[at] += scores[expert] * (block.experts.down_proj[expert] @ (silu(gate) * up))
    return out


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("norm_topk_prob", [None, True])
@torch.no_grad()
def test_weights_are_not_renormalised_and_keep_the_bias(
    biased: bool, norm_topk_prob: bool | None
) -> None:
    model = small(moe_router_enable_expert_bias=biased, norm_topk_prob=norm_topk_prob)
    block = model.model.layers[0].mlp
    bias = None
    if biased:
        bias = torch.linspace(-0.3, 0.3, 6)
        block.gate.expert_bias.copy_(bias)
    hidden = torch.randn(9, 32)
    torch.testing.assert_close(block(hidden[None])[0], by_hand(block, hidden, 2, bias))


@pytest.mark.parametrize("name", ["llada-moe", "llada-moe-bias"])
@torch.inference_mode()
def test_experts_run_as_one_grouped_product_unless_asked_otherwise(name: str) -> None:
    ids = torch.arange(4, 40)[None]
    grouped = AutoModelForMaskedLM.from_pretrained(PARITY / name)
    assert grouped.config._experts_implementation == "grouped_mm"
    loop = AutoModelForMaskedLM.from_pretrained(PARITY / name, experts_implementation="eager")
    assert loop.config._experts_implementation == "eager"
    torch.testing.assert_close(grouped(ids).logits, loop(ids).logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["llada-moe", "llada-moe-bias"])
@torch.inference_mode()
def test_experts_one_by_one_give_the_same(name: str) -> None:
    ids = torch.arange(4, 40)[None]
    grouped = AutoModelForMaskedLM.from_pretrained(PARITY / name)
    separate = SeparateLLaDAMoEForMaskedLM.from_pretrained(PARITY / name)
    assert separate.model.layers[-1].mlp.experts[3].up_proj.weight.ndim == 2
    torch.testing.assert_close(separate(ids).logits, grouped(ids).logits, rtol=0, atol=1e-5)


def test_the_bias_stays_in_float32() -> None:
    model = AutoModelForMaskedLM.from_pretrained(PARITY / "llada-moe-bias", dtype=torch.bfloat16)
    gate = model.model.layers[1].mlp.gate
    assert (gate.weight.dtype, gate.expert_bias.dtype) == (torch.bfloat16, torch.float32)


@pytest.mark.parametrize("grouped_queries", [True, False])
@pytest.mark.parametrize("qk_layernorm", [True, False])
@pytest.mark.parametrize("tied", [True, False])
@torch.inference_mode()
def test_other_shapes_are_saved_under_published_names_and_read_again(
    tmp_path: Path, grouped_queries: bool, qk_layernorm: bool, tied: bool
) -> None:
    model = small(
        num_key_value_heads=2 if grouped_queries else None,
        qk_layernorm=qk_layernorm,
        tie_word_embeddings=tied,
        moe_layer_freq=[1, 0],
        moe_router_enable_expert_bias=True,
        rope_theta=123.0,
    )
    model.model.layers[0].mlp.gate.expert_bias.uniform_()
    model.save_pretrained(tmp_path)
    names = set(load_file(tmp_path / "model.safetensors"))
    assert {
        "model.layers.0.mlp.expert_bias",
        "model.layers.0.mlp.gate.weight",
        "model.layers.0.mlp.experts.5.down_proj.weight",
        "model.layers.1.mlp.down_proj.weight",
    } <= names
    assert ("model.layers.0.self_attn.q_norm.weight" in names) == qk_layernorm
    assert ("lm_head.weight" in names) == (not tied)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["model_type"] == "llada"
    assert saved["architectures"] == ["LLaDAMoEModelLM"]
    assert saved["rope_theta"] == 123.0
    again = AutoModelForMaskedLM.from_pretrained(tmp_path)
    assert type(again) is LLaDAMoEForMaskedLM
    ids = torch.randint(4, 40, (2, 9))
    torch.testing.assert_close(again(ids).logits, model(ids).logits, rtol=0, atol=0)
    stack = AutoModel.from_pretrained(tmp_path)
    hidden = model.model(ids).last_hidden_state
    torch.testing.assert_close(stack(ids).last_hidden_state, hidden, rtol=0, atol=0)


def test_a_saved_config_has_the_published_fields(
    tmp_path: Path, parity_model: Callable[[str], Any]
) -> None:
    parity_model("llada-moe-bias").save_pretrained(tmp_path)
    published = json.loads((PARITY / "llada-moe-bias" / "config.json").read_text())
    saved = json.loads((tmp_path / "config.json").read_text())
    # dtype is the name of torch_dtype since transformers 5; nothing here needs a cache or a loss.
    for field in set(published) - {"torch_dtype", "use_cache"}:
        assert saved[field] == published[field], field
    assert not {"moe_intermediate_size", "mlp_only_layers", "rope_parameters"} & set(saved)


def edited(tmp_path: Path, **fields: Any) -> Path:
    config = json.loads((PARITY / "llada-moe" / "config.json").read_text()) | fields
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("moe_router_score_function", "sigmoid"),
        ("shared_expert_intermediate_size", 64),
        ("routed_scaling_factor", 2.5),
        ("partial_rotary_factor", 0.5),
        ("router_num_group", 4),
        ("clip_qkv", 8.0),
        ("moe_layer_freq", [1, 1]),
        ("moe_layer_freq", 1),
        ("num_experts_per_tok", 9),
    ],
)
def test_what_we_do_not_build_is_refused(tmp_path: Path, field: str, value: object) -> None:
    with pytest.raises(UserError, match=f"llada-moe config field {field} is"):
        AutoConfig.from_pretrained(edited(tmp_path, **{field: value}))


def test_experts_do_not_load_as_the_dense_family() -> None:
    with pytest.raises(UserError, match="LLaDAForMaskedLM takes a LLaDAConfig"):
        LLaDAForMaskedLM.from_pretrained(PARITY / "llada-moe")


def test_an_expert_under_a_wrong_number_is_not_taken_for_another(tmp_path: Path) -> None:
    folder = tmp_path / "moe"
    shutil.copytree(PARITY / "llada-moe", folder)
    weights = load_file(folder / "model.safetensors")
    wrong = "model.layers.1.mlp.experts.3.down_proj.weight"
    weights[wrong.replace("experts.3", "experts.8")] = weights.pop(wrong)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"lacks model\.layers\.\d\.mlp\.experts\.\d"):
        AutoModelForMaskedLM.from_pretrained(folder)
