"""Checkpoints: what does not fit is refused by name, what is saved can be read by all."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForMaskedLM

from rho_eos.base.errors import UserError
from rho_eos.models.families.llada import LLaDAConfig
from rho_eos.models.layers.llada import LLaDAForMaskedLM
from tests.models.parity import PARITY, WHOLE

Weights = dict[str, torch.Tensor]


def rewritten(tmp_path: Path, name: str, change: Callable[[Weights], object]) -> Path:
    folder = tmp_path / name
    shutil.copytree(PARITY / name, folder)
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("name", WHOLE)
def test_a_missing_weight_is_named(tmp_path: Path, name: str) -> None:
    lost = sorted(load_file(PARITY / name / "model.safetensors"))[3]
    folder = rewritten(tmp_path, name, lambda weights: weights.pop(lost))
    with pytest.raises(UserError, match="lacks") as refused:
        AutoModelForMaskedLM.from_pretrained(folder)
    number = next(part for part in lost.split(".") if part.isdigit())
    assert f"layers.{number}." in str(refused.value)


@pytest.mark.parametrize("name", WHOLE)
def test_an_unknown_weight_is_named(tmp_path: Path, name: str) -> None:
    folder = rewritten(tmp_path, name, lambda w: w.update({"model.extra.weight": torch.ones(2)}))
    with pytest.raises(UserError, match=r"unknown .*extra\.weight"):
        AutoModelForMaskedLM.from_pretrained(folder)


@pytest.mark.parametrize("name", WHOLE)
def test_a_misshapen_weight_is_named(tmp_path: Path, name: str) -> None:
    key = next(k for k in load_file(PARITY / name / "model.safetensors") if "up_proj" in k)
    folder = rewritten(tmp_path, name, lambda weights: weights.update({key: torch.ones(3, 3)}))
    with pytest.raises(UserError, match=r"misshapen.*up_proj"):
        AutoModelForMaskedLM.from_pretrained(folder)


def test_a_missing_shard_key_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "sharded"
    shutil.copytree(PARITY / "llada-sharded", folder)
    shard = folder / "model-00002-of-00003.safetensors"
    weights = load_file(shard)
    lost = next(key for key in weights if "attn_out" in key)
    del weights[lost]
    save_file(weights, shard, metadata={"format": "pt"})
    index_file = folder / "model.safetensors.index.json"
    index = json.loads(index_file.read_text())
    del index["weight_map"][lost]
    index_file.write_text(json.dumps(index))
    with pytest.raises(UserError, match=r"lacks .*o_proj\.weight"):
        AutoModelForMaskedLM.from_pretrained(folder)


def edited_config(tmp_path: Path, **fields: Any) -> Path:
    config = json.loads((PARITY / "llada-mha" / "config.json").read_text()) | fields
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


@pytest.mark.parametrize(
    ("field", "value"),
    [("layer_norm_type", "low_precision"), ("alibi", True), ("rope", False), ("block_type", "x")],
)
def test_an_architecture_we_do_not_build_is_refused(
    tmp_path: Path, field: str, value: object
) -> None:
    with pytest.raises(UserError, match=f"{field} is {value!r}"):
        AutoConfig.from_pretrained(edited_config(tmp_path, **{field: value}))


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
    again = AutoModelForMaskedLM.from_pretrained(tmp_path)
    torch.testing.assert_close(again(ids).logits, model(ids).logits, rtol=0, atol=0)


def test_a_saved_llada_config_has_the_published_fields(
    tmp_path: Path, parity_model: Callable[[str], Any]
) -> None:
    parity_model("llada-gqa").save_pretrained(tmp_path)
    published = json.loads((PARITY / "llada-gqa" / "config.json").read_text())
    saved = json.loads((tmp_path / "config.json").read_text())
    # dtype is the name of torch_dtype since transformers 5; a diffusion model has no cache to use.
    of_the_library = {"transformers_version", "torch_dtype", "use_cache"}
    for field in set(published) - of_the_library:
        assert saved[field] == published[field], field
    for foreign in ("hidden_size", "num_attention_heads", "rope_parameters", "head_dim"):
        assert foreign not in saved


def small_llada(**fields: Any) -> LLaDAForMaskedLM:
    torch.manual_seed(0)
    sizes = {"d_model": 32, "n_layers": 2, "n_heads": 4, "mlp_hidden_size": 64, "vocab_size": 40}
    return LLaDAForMaskedLM(LLaDAConfig(**sizes, eos_token_id=2, pad_token_id=2, **fields))


@pytest.mark.parametrize("tied", [False, True])
def test_eos_is_trained_although_it_is_the_padding_token(tied: bool) -> None:
    model = small_llada(weight_tying=tied)
    ids = torch.tensor([[5, 2, 2, 7]])
    loss = model(ids, labels=torch.tensor([[5, -100, -100, 7]])).loss
    loss.backward()
    gradient = model.model.embed_tokens.weight.grad
    assert gradient[2].abs().sum() > 0
    assert gradient[5].abs().sum() > 0


def test_every_position_sees_every_other() -> None:
    model = small_llada().eval()
    with torch.inference_mode():
        before = model(torch.tensor([[5, 6, 7, 8]])).logits
        after = model(torch.tensor([[5, 6, 7, 9]])).logits
    assert (before[0, 0] - after[0, 0]).abs().max() > 0
