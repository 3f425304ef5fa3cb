"""Checkpoints: what does not fit is refused by name, what is saved can be read by all."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForMaskedLM

from rho_eos.base.errors import UserError
from rho_eos.config import EngineConfig
from rho_eos.models.families.llada import LLaDAConfig
from rho_eos.models.layers.llada import LLaDAForMaskedLM
from rho_eos.models.loading import open_checkpoint
from tests.models.parity import BLOCKS, PARITY, WHOLE, changed

Weights = dict[str, torch.Tensor]


def lose(weights: Weights) -> str:
    """Take a weight of some layer out; its own names may differ from those of the checkpoint."""
    lost = sorted(weights)[3]
    del weights[lost]
    return f"layers.{next(part for part in lost.split('.') if part.isdigit())}."


def misshape(weights: Weights) -> str:
    weights[next(key for key in weights if "up_proj" in key)] = torch.ones(3, 3)
    return "up_proj"


def add(weights: Weights) -> str:
    weights["model.extra.weight"] = torch.ones(2)
    return "extra.weight"


def renumber_an_expert(weights: Weights) -> str:
    wrong = "model.layers.1.mlp.experts.3.down_proj.weight"
    weights[wrong.replace("experts.3", "experts.8")] = weights.pop(wrong)
    return ".mlp.experts."


FAULTS = {lose: "lacks", misshape: "misshapen", add: "unknown"}


@pytest.mark.parametrize(
    ("name", "change", "what"),
    [
        *((n, change, w) for n in WHOLE for change, w in FAULTS.items()),
        ("llada-moe", renumber_an_expert, "lacks"),  # nor is it taken for another
    ],
)
def test_a_weight_that_does_not_fit_is_named(
    tmp_path: Path, name: str, change: Callable[[Weights], str], what: str
) -> None:
    folder = tmp_path / name
    shutil.copytree(PARITY / name, folder)
    weights = load_file(folder / "model.safetensors")
    named = change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=f"{what} .*{re.escape(named)}"):
        AutoModelForMaskedLM.from_pretrained(folder)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("llada-mha", "layer_norm_type", "low_precision"),
        ("llada-mha", "alibi", True),
        ("llada-mha", "rope", False),
        ("llada-mha", "block_type", "x"),
        ("llada-moe", "moe_router_score_function", "sigmoid"),
        ("llada-moe", "shared_expert_intermediate_size", 64),
        ("llada-moe", "routed_scaling_factor", 2.5),
        ("llada-moe", "partial_rotary_factor", 0.5),
        ("llada-moe", "router_num_group", 4),
        ("llada-moe", "clip_qkv", 8.0),
        ("llada-moe", "moe_layer_freq", [1, 1]),
        ("llada-moe", "moe_layer_freq", 1),
        ("llada-moe", "num_experts_per_tok", 9),
        ("illada", "layer_norm_eps", 1e-5),
        ("llada2-moe", "n_group", 3),
        ("llada2-moe", "n_group", 8),
        ("llada2-moe", "n_group", 0),
        ("llada2-moe", "topk_group", 5),
        ("llada2-moe", "topk_group", 0),
        ("llada2-moe", "num_experts_per_tok", 5),
        ("llada2-moe", "num_shared_experts", 0),
        ("llada2-moe", "first_k_dense_replace", -1),
        ("llada2-moe", "use_qk_norm", False),
        ("llada2-moe", "use_qkv_bias", True),
        ("llada2-moe", "use_bias", True),
        ("sdar-moe", "num_experts_per_tok", 9),
        ("sdar-moe", "decoder_sparse_step", 2),
        ("sdar-moe", "mlp_only_layers", [1]),
    ],
)
def test_an_architecture_we_do_not_build_is_refused(
    tmp_path: Path, name: str, field: str, value: object
) -> None:
    folder = changed(tmp_path, name, **{field: value})
    with pytest.raises(UserError, match=f"{field} .*{re.escape(repr(value))}"):
        open_checkpoint(EngineConfig(model=str(folder), mask_token_id=3, eos_token_id=2))


@pytest.mark.parametrize("name", WHOLE)
@torch.inference_mode()
def test_a_saved_checkpoint_has_the_published_names_and_reloads_equal(
    tmp_path: Path, name: str, parity_model: Callable[[str], Any]
) -> None:
    model = parity_model(name)
    model.save_pretrained(tmp_path)
    published = load_file(PARITY / name / "model.safetensors")
    saved = load_file(tmp_path / "model.safetensors")
    assert set(saved) == set(published)
    for key, weight in published.items():
        torch.testing.assert_close(saved[key], weight, rtol=0, atol=0)
    ids = torch.randint(4, 80, (2, 9))
    told = {"block_length": 4} if name in BLOCKS else {}  # else the folder's name may say it
    again = AutoModelForMaskedLM.from_pretrained(tmp_path)
    torch.testing.assert_close(again(ids, **told).logits, model(ids, **told).logits, rtol=0, atol=0)


@pytest.mark.parametrize(
    "name", ["llada-gqa", "llada-moe-bias", "sdar-b4", "sdar-moe", "llada2-moe", "fast-dllm-v2"]
)
def test_a_saved_config_has_the_published_fields(
    tmp_path: Path, name: str, parity_model: Callable[[str], Any]
) -> None:
    parity_model(name).save_pretrained(tmp_path)
    published = json.loads((PARITY / name / "config.json").read_text())
    saved = json.loads((tmp_path / "config.json").read_text())
    # dtype is the name of torch_dtype since transformers 5; a diffusion model has no cache to use.
    of_the_library = {"transformers_version", "torch_dtype", "use_cache"}
    if name in BLOCKS:
        of_the_library |= {"auto_map", "attn_implementation"}
        of_the_library |= {"rope_theta", "rope_scaling", "partial_rotary_factor"}
    for field in set(published) - of_the_library:
        assert saved[field] == published[field], field
    foreign = {"n_shared_experts", "num_local_experts", "attention_bias"}
    if name.startswith("llada-"):
        foreign |= {"rope_parameters", "moe_intermediate_size", "mlp_only_layers"}
    if name == "llada-gqa":
        foreign |= {"hidden_size", "num_attention_heads", "head_dim"}
    assert not (foreign - set(published)) & set(saved)


@pytest.mark.parametrize("tied", [False, True])
def test_eos_is_trained_although_it_is_the_padding_token(tied: bool) -> None:
    torch.manual_seed(0)
    sizes = {"d_model": 32, "n_layers": 2, "n_heads": 4, "mlp_hidden_size": 64, "vocab_size": 40}
    config = LLaDAConfig(**sizes, eos_token_id=2, pad_token_id=2, weight_tying=tied)
    model = LLaDAForMaskedLM(config)
    ids = torch.tensor([[5, 2, 2, 7]])
    loss = model(ids, labels=torch.tensor([[5, -100, -100, 7]])).loss
    loss.backward()
    gradient = model.model.embed_tokens.weight.grad
    assert gradient[2].abs().sum() > 0
    assert gradient[5].abs().sum() > 0
