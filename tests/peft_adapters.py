"""Adapters as the real PEFT saves them, from random training of the small checkpoints."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from rho_eos import LLM
from rho_eos.models.auto import AutoModelForMaskedLM
from tests.models.parity import recorded

#: What LLaDA's own code calls the modules of a layer, written down from its file.
LLADA_NAMES = {
    "self_attn.q_proj": "q_proj",
    "self_attn.k_proj": "k_proj",
    "self_attn.v_proj": "v_proj",
    "self_attn.o_proj": "attn_out",
    "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "ff_out",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ff_norm",
}
EVERY_LINEAR = [name.rpartition(".")[2] for name in LLADA_NAMES if "norm" not in name]

IDS = {"mask_token_id": 3, "eos_token_id": 2}


@torch.inference_mode()
def logits_of(model: Any, name: str) -> torch.Tensor:
    return torch.cat([model(row[None]).logits[0] for row in recorded(name)[0]])


def load(model: Path | str, **options: Any) -> Any:
    return LLM(str(model), **{**IDS, **options}).model


def close(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    return torch.allclose(found, wanted, atol=1e-4, rtol=1e-4)


def make_adapter(folder: Path, model: Path, seed: int = 0, **settings: Any) -> torch.nn.Module:
    """Wrap a checkpoint in PEFT, fill the adapter with noise and save it; the wrapped model."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(**{"r": 4, "lora_alpha": 8, "target_modules": EVERY_LINEAR, **settings})
    wrapped = get_peft_model(AutoModelForMaskedLM.from_pretrained(model), config)
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in wrapped.named_parameters():
            if weight.requires_grad:
                noise = torch.randn_like(weight) * 0.1
                weight.copy_(weight * (1 + noise) if "magnitude" in name else noise + 0.01)
    wrapped.save_pretrained(folder)
    return wrapped.eval()


def as_llada_names_it(folder: Path, target: Path, **settings: Any) -> Path:
    """The same adapter as if it had been trained with LLaDA's own code, with these settings."""

    def renamed(name: str) -> str:
        name = name.replace("model.embed_tokens", "model.transformer.wte")
        name = name.replace("lm_head", "model.transformer.ff_out")
        name = name.replace("model.norm", "model.transformer.ln_f")
        for ours, theirs in LLADA_NAMES.items():
            name = name.replace(f".{ours}", f".{theirs}")
        return name.replace("model.layers.", "model.transformer.blocks.")

    def change(config: dict[str, Any]) -> None:
        config |= {"target_modules": ["q_proj"], **settings}  # nothing depends on the targets

    return rewritten(folder, target, renamed, change)


def rewritten(folder: Path, target: Path, renamed: Any = str, change: Any = None) -> Path:
    """A copy with other names of tensors and other settings."""
    target.mkdir()
    tensors = load_file(folder / "adapter_model.safetensors")
    renamed_tensors = {renamed(name): each for name, each in tensors.items()}
    save_file(renamed_tensors, target / "adapter_model.safetensors")
    config = json.loads((folder / "adapter_config.json").read_text())
    if change is not None:
        change(config)
    (target / "adapter_config.json").write_text(json.dumps(config))
    return target


def write_adapter(folder: Path, tensors: Mapping[str, torch.Tensor], **settings: Any) -> Path:
    """An adapter of given tensors, under the names they have in the trained model."""
    folder.mkdir(parents=True)
    named = {f"base_model.model.{name}": each.contiguous() for name, each in tensors.items()}
    save_file(named, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, **settings}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder
