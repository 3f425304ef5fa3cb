"""Merged adapters against PEFT's own layers, and what no adapter may do."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from rho_eos.base.errors import UserError
from rho_eos.models.merging import Merger
from tests.models.parity import PARITY, changed
from tests.peft_adapters import (
    as_llada_names_it,
    close,
    load,
    logits_of,
    make_adapter,
    write_adapter,
)

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "patterns": {
        "use_rslora": True,
        "rank_pattern": {"up_proj": 2, "^model.layers.0.self_attn.q_proj": 8},
        "alpha_pattern": {r".*\.1\.mlp\.gate_proj": 3, "down_proj": 16},
    },
    "dora": {"use_dora": True},
    "whole modules": {"target_modules": ["v_proj"], "modules_to_save": ["lm_head", "norm"]},
    "embedding": {"target_modules": ["embed_tokens", "lm_head"]},
}
#: The patterns of the same modules under the names of LLaDA's own code.
LLADA_PATTERNS = {
    "rank_pattern": {"up_proj": 2, "^model.transformer.blocks.0.q_proj": 8},
    "alpha_pattern": {r".*\.1\.ff_proj": 3, "ff_out": 16},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["llada-gqa", "dream"])
def test_logits_are_those_of_peft(name: str, kind: str, tmp_path: Path) -> None:
    wrapped = make_adapter(tmp_path / "ours", PARITY / name, **KINDS[kind])
    wanted = logits_of(wrapped, name)
    assert not close(wanted, logits_of(load(PARITY / name), name))
    assert close(logits_of(load(PARITY / name, adapter=str(tmp_path / "ours")), name), wanted)
    if name == "llada-gqa":
        patterns = LLADA_PATTERNS if kind == "patterns" else {}
        theirs = as_llada_names_it(tmp_path / "ours", tmp_path / "theirs", **patterns)
        assert close(logits_of(load(PARITY / name, adapter=str(theirs)), name), wanted)


def edited(tmp_path: Path, name: str, added: dict[str, torch.Tensor]) -> Path:
    """The checkpoint with something added to the weights in its file: merging by hand."""
    folder = changed(tmp_path, name)
    weights = load_file(folder / "model.safetensors")
    for key, delta in added.items():
        weights[key] = (weights[key].float() + delta).to(weights[key].dtype)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def random_product(rank: int, out: int, inner: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rank, inner) * 0.2, torch.randn(out, rank) * 0.2


FUSED = {
    "sdar-moe": ["mlp.experts.0.gate_proj", "mlp.experts.1.up_proj", "mlp.experts.2.down_proj"],
    "llada2-moe": ["attention.query_key_value", "mlp.experts.1.down_proj"],
}


@pytest.mark.parametrize("quantization", ["none", "int8"])
@pytest.mark.parametrize("name", FUSED)
def test_pieces_of_a_weight_and_several_in_one_are_found(
    name: str, quantization: Any, tmp_path: Path
) -> None:
    stored = load_file(PARITY / name / "model.safetensors")
    tensors, added = {}, {}
    torch.manual_seed(1)
    for module in FUSED[name]:
        key = next(key for key in sorted(stored)[::-1] if key.endswith(f".{module}.weight"))
        first, second = random_product(4, *stored[key].shape)
        path = key.removesuffix(".weight")
        tensors |= {f"{path}.lora_A.weight": first, f"{path}.lora_B.weight": second}
        added[key] = 8 / 4 * second @ first
    adapter = write_adapter(tmp_path / "adapter", tensors)
    by_hand = load(edited(tmp_path, name, added), quantization=quantization)
    merged = load(PARITY / name, adapter=str(adapter), quantization=quantization)
    wanted = logits_of(by_hand, name)
    assert not close(logits_of(load(PARITY / name, quantization=quantization), name), wanted)
    assert torch.allclose(
        logits_of(merged, name), wanted, atol=1e-3 if quantization == "int8" else 1e-4
    )


def test_several_adapters_add_up(tmp_path: Path) -> None:
    folders = [str(tmp_path / str(seed)) for seed in (1, 2)]
    for seed, folder in enumerate(folders):
        make_adapter(Path(folder), PARITY / "llada-gqa", seed)
    base, first, second, both = (
        load(PARITY / "llada-gqa", adapter=each).model.layers[1].mlp.up_proj.weight
        for each in ([], folders[:1], folders[1:], folders)
    )
    assert torch.allclose(both - base, (first - base) + (second - base), atol=1e-6)


def test_a_layer_is_quantised_before_the_next_is_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that an adapter for every weight takes no second copy of the model."""
    make_adapter(tmp_path / "adapter", PARITY / "llada-gqa")
    wide: list[int] = []
    merge = Merger.layer

    def watched(merger: Merger, number: int) -> None:
        layers = list(merger._model.model.layers)
        wide.append(
            sum(isinstance(m, nn.Linear) for each in layers[:number] for m in each.modules())
        )
        merge(merger, number)

    monkeypatch.setattr(Merger, "layer", watched)
    load(PARITY / "llada-gqa", adapter=str(tmp_path / "adapter"), quantization="int8")
    assert wide == [0, 0, 0]


GOOD = "model.layers.0.mlp.up_proj.lora_"


def change_settings(**settings: Any) -> Any:
    return lambda tensors, config: config.update(settings)


def rename(old: str, new: str) -> Any:
    return lambda tensors, config: tensors.update({new: tensors.pop(old)})


def put(**tensors: torch.Tensor) -> Any:
    return lambda own, config: own.update(
        {GOOD + name.replace("_", "."): each for name, each in tensors.items()}
    )


REFUSED: dict[str, tuple[Any, str]] = {
    "a module that there is not": (
        rename(GOOD + "A.weight", "model.layers.0.mlp.sideways.lora_A.weight"),
        "model.layers.0.mlp.sideways.lora_A.weight belongs to no weight",
    ),
    "a layer that there is not": (
        rename(GOOD + "A.weight", "model.layers.99.mlp.up_proj.lora_A.weight"),
        "model.layers.99.mlp.up_proj",
    ),
    "half a product": (lambda own, config: own.pop(GOOD + "B.weight"), "lacks lora_B"),
    "another width": (put(A_weight=torch.ones(4, 63)), "4 × 63, not 4 × 64"),
    "another rank": (change_settings(r=3), "4 × 64, not 3 × 64"),
    "NaN": (put(A_weight=torch.full((4, 64), torch.nan)), "NaN"),
    "another kind": (change_settings(peft_type="IA3"), "only LORA"),
    "no kind": (change_settings(peft_type=["LORA"]), "peft_type is"),
    "a changed base": (change_settings(init_lora_weights="pissa"), "init_lora_weights is 'pissa'"),
    "a module to import": (change_settings(megatron_config={"a": 1}), "megatron_config is"),
    "layers to copy": (change_settings(layer_replication=[[0, 2]]), "layer_replication is"),
    "a rank of text": (change_settings(r="8"), "r is '8'"),
    "no scale": (change_settings(lora_alpha=float("nan")), "cannot read"),
    "a pattern without end": (change_settings(rank_pattern={"(a+)+": 4}), "rank_pattern is"),
    "no pattern": (change_settings(alpha_pattern={"(": 4}), "alpha_pattern is"),
    "magnitudes that are missing": (change_settings(use_dora=True), "lacks lora_magnitude_vector"),
    "another vocabulary": (
        lambda own, config: own.update({"lm_head.weight": torch.ones(7, 64)}),
        "7 × 64, not 160 × 64",
    ),
    "nothing": (lambda own, config: own.clear(), "holds no weights"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit_is_refused_in_one_sentence(what: str, tmp_path: Path) -> None:
    spoil, sentence = REFUSED[what]
    first, second = random_product(4, 176, 64)
    tensors, config = {GOOD + "A.weight": first, GOOD + "B.weight": second}, {"r": 4}
    spoil(tensors, config)
    adapter = write_adapter(tmp_path / "adapter", tensors, **config)
    with pytest.raises(UserError) as refusal:
        load(PARITY / "llada-gqa", adapter=str(adapter))
    assert sentence in str(refusal.value) and "\n" not in str(refusal.value)


def test_weights_come_from_safetensors_only(tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "adapter", {"x": torch.ones(1)})
    (adapter / "adapter_model.safetensors").unlink()
    torch.save({}, adapter / "adapter_model.bin")
    with pytest.raises(UserError, match=r"adapter_model.bin is a pickle"):
        load(PARITY / "llada-gqa", adapter=str(adapter))
    (adapter / "adapter_model.safetensors").write_bytes(b"\xff" * 64)
    with pytest.raises(UserError, match="damaged"):
        load(PARITY / "llada-gqa", adapter=str(adapter))


@pytest.mark.parametrize("given", ["./nowhere", "no/such@/place", "tiny", str(PARITY / "dream")])
def test_what_is_no_adapter(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="adapter"):
        load(PARITY / "llada-gqa", adapter=given)


def test_an_adapter_in_place_of_a_model_is_named(tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "adapter", {"x": torch.ones(1)})
    with pytest.raises(UserError, match="--adapter"):
        load(adapter)
