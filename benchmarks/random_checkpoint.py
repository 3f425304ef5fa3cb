"""Checkpoints of full size with random weights: what memory and time depend on, without a download.

Written shard by shard, so that writing needs little memory, in the published layout: file names,
tensor names, dtype, and a config.json that says no more than the published one.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

Shape = tuple[int, ...]

#: LLaDA-8B-Instruct's config.json. It names no torch_dtype: the weights themselves say bfloat16.
LLADA_8B: dict[str, Any] = {
    "activation_type": "silu",
    "alibi": False,
    "alibi_bias_max": 8.0,
    "architectures": ["LLaDAModelLM"],
    "attention_dropout": 0.0,
    "attention_layer_norm": False,
    "attention_layer_norm_with_affine": True,
    "bias_for_layer_norm": False,
    "block_group_size": 1,
    "block_type": "llama",
    "d_model": 4096,
    "embedding_dropout": 0.0,
    "embedding_size": 126464,
    "eos_token_id": 126081,
    "flash_attention": False,
    "include_bias": False,
    "include_qkv_bias": False,
    "init_cutoff_factor": None,
    "init_device": "meta",
    "init_fn": "mitchell",
    "init_std": 0.02,
    "input_emb_norm": False,
    "layer_norm_type": "rms",
    "layer_norm_with_affine": True,
    "mask_token_id": 126336,
    "max_sequence_length": 4096,
    "mlp_hidden_size": 12288,
    "mlp_ratio": 4,
    "model_type": "llada",
    "multi_query_attention": None,
    "n_heads": 32,
    "n_kv_heads": 32,
    "n_layers": 32,
    "pad_token_id": 126081,
    "precision": "amp_bf16",
    "residual_dropout": 0.0,
    "rms_norm_eps": 1e-05,
    "rope": True,
    "rope_full_precision": True,
    "rope_theta": 500000.0,
    "scale_logits": False,
    "transformers_version": "4.46.3",
    "use_cache": False,
    "vocab_size": 126464,
    "weight_tying": False,
}

#: LLaDA-MoE-7B-A1B: 64 experts a layer, 8 of them used.
LLADA_MOE: dict[str, Any] = {
    "architectures": ["LLaDAMoEModelLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "clip_qkv": None,
    "dense_intermediate_size": 8192,
    "eos_token_id": 156892,
    "expert_intermediate_size": 1024,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "mask_token_id": 156895,
    "max_position_embeddings": 8192,
    "model_type": "llada",
    "moe_layer_freq": [1] * 16,
    "moe_router_enable_expert_bias": False,
    "moe_router_score_function": "softmax",
    "norm_topk_prob": None,
    "num_attention_heads": 16,
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 16,
    "num_key_value_heads": 16,
    "output_router_logits": False,
    "pad_token_id": 156892,
    "partial_rotary_factor": 1,
    "qk_layernorm": True,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 50000,
    "routed_scaling_factor": 1,
    "router_aux_loss_coef": 0.01,
    "router_num_group": None,
    "router_topk_group": None,
    "shared_expert_intermediate_size": None,
    "tie_word_embeddings": False,
    "use_cache": False,
    "vocab_size": 157184,
}

#: Numbers from which all weights are cut: drawing each anew would take minutes and change nothing.
_POOL = 2**26


def write_checkpoint(folder: Path, config: dict[str, Any], layers: int | None = None) -> int:
    """Write a random checkpoint into `folder`; returns its bytes. `layers`: fewer than published.

    A file holds a few layers, so that at most about 2 GB are in memory.
    """
    moe = "num_experts" in config
    if layers is not None:
        fewer = {"num_hidden_layers": layers, "moe_layer_freq": [1] * layers}
        config = config | (fewer if moe else {"n_layers": layers})
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(0)
    pool = (torch.randn(_POOL, generator=generator) * 0.02).bfloat16()
    shards = list(_moe_shards(config) if moe else _llada_shards(config))
    where, total = {}, 0
    for number, shapes in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        weights = {
            name: _cut(pool, shape, generator) if len(shape) > 1 else torch.ones(shape).bfloat16()
            for name, shape in shapes.items()
        }
        save_file(weights, folder / file, metadata={"format": "pt"})
        where |= dict.fromkeys(weights, file)
        total += sum(weight.nbytes for weight in weights.values())
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    return total


def _cut(pool: torch.Tensor, shape: Shape, generator: torch.Generator) -> torch.Tensor:
    """A tensor of its own out of the pool, from a place drawn for it, repeated where too short."""
    start = int(torch.randint(len(pool), (1,), generator=generator))
    wanted = torch.Size(shape).numel()
    turns = 1 + (start + wanted) // len(pool)
    return pool.repeat(turns)[start : start + wanted].reshape(shape).clone()


def _llada_shards(config: dict[str, Any], layers_each: int = 4) -> Iterator[dict[str, Shape]]:
    width, inner, vocabulary = (
        config[name] for name in ("d_model", "mlp_hidden_size", "vocab_size")
    )
    layer: dict[str, Shape] = {
        **{f"{name}.weight": (width, width) for name in ("q_proj", "k_proj", "v_proj", "attn_out")},
        "ff_proj.weight": (inner, width),
        "up_proj.weight": (inner, width),
        "ff_out.weight": (width, inner),
        "attn_norm.weight": (width,),
        "ff_norm.weight": (width,),
    }
    top = "model.transformer"
    yield {f"{top}.wte.weight": (vocabulary, width)}
    yield from _layer_shards(f"{top}.blocks", layer, config["n_layers"], layers_each)
    yield {f"{top}.ln_f.weight": (width,), f"{top}.ff_out.weight": (vocabulary, width)}


def _moe_shards(config: dict[str, Any], layers_each: int = 2) -> Iterator[dict[str, Shape]]:
    width, inner, heads = (
        config[name] for name in ("hidden_size", "expert_intermediate_size", "num_attention_heads")
    )
    layer: dict[str, Shape] = {
        **{f"self_attn.{name}_proj.weight": (width, width) for name in "qkvo"},
        **{f"self_attn.{name}_norm.weight": (width // heads,) for name in "qk"},
        "input_layernorm.weight": (width,),
        "post_attention_layernorm.weight": (width,),
        "mlp.gate.weight": (config["num_experts"], width),
    }
    for expert in range(config["num_experts"]):
        layer |= {
            f"mlp.experts.{expert}.gate_proj.weight": (inner, width),
            f"mlp.experts.{expert}.up_proj.weight": (inner, width),
            f"mlp.experts.{expert}.down_proj.weight": (width, inner),
        }
    yield {"model.embed_tokens.weight": (config["vocab_size"], width)}
    yield from _layer_shards("model.layers", layer, config["num_hidden_layers"], layers_each)
    yield {"model.norm.weight": (width,), "lm_head.weight": (config["vocab_size"], width)}


def _layer_shards(
    prefix: str, layer: dict[str, Shape], layers: int, each: int
) -> Iterator[dict[str, Shape]]:
    for start in range(0, layers, each):
        yield {
            f"{prefix}.{number}.{name}": shape
            for number in range(start, min(start + each, layers))
            for name, shape in layer.items()
        }
