"""The embedded model before training: its sizes and its initial weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerBase

from rho_eos.models.llada import LLaDAConfig, LLaDAForMaskedLM

PERIODS = (2, 5, 10, 20, 50, 100)
#: Fields that our code does not read but LLaDA's own does, at the values of its published models.
PUBLISHED_FIELDS = {
    "alibi_bias_max": 8.0,
    "attention_layer_norm_with_affine": True,
    "block_group_size": 1,
    "embedding_dropout": 0.0,
    "flash_attention": False,
    "init_cutoff_factor": None,
    "init_device": "cpu",
    "init_fn": "normal",
    "multi_query_attention": None,
    "precision": None,
    "residual_dropout": 0.0,
    "rope_full_precision": True,
}


@dataclass(frozen=True, slots=True)
class Size:
    """How large the model is, and with it what it is trained and validated on."""

    width: int = 128
    layers: int = 6
    heads: int = 4
    mlp: int = 336
    tokens: int = 3072  # per batch and process, both streams counted
    hardest: float = 1.0  # share of each task's steps that is reached
    validation: int = 6  # problems per task to try decoding on
    validation_steps: int | None = None  # their difficulty, if not drawn
    validation_length: int = 320


FULL = Size()
QUICK = Size(
    width=64,
    layers=2,
    heads=2,
    mlp=160,
    tokens=1024,
    hardest=0.1,
    validation=1,
    validation_steps=1,
    validation_length=48,
)


def new_model(size: Size, tokenizer: PreTrainedTokenizerBase) -> LLaDAForMaskedLM:
    """LLaDA with branches that start silent, so that every layer begins as the identity."""
    config = LLaDAConfig(
        d_model=size.width,
        n_layers=size.layers,
        n_heads=size.heads,
        n_kv_heads=size.heads,
        mlp_hidden_size=size.mlp,
        vocab_size=len(tokenizer),
        max_sequence_length=1024,
        rope_theta=10000.0,
        mask_token_id=tokenizer.mask_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
        **PUBLISHED_FIELDS,
    )
    model = LLaDAForMaskedLM(config)
    for name, parameter in model.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight", "lm_head.weight")):
            torch.nn.init.zeros_(parameter)
        elif "embed" in name:
            torch.nn.init.normal_(parameter, std=0.5)
        elif parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.7 / parameter.shape[1] ** 0.5)
    _tell_numbers_apart(model, tokenizer)
    return model


@torch.no_grad()
def _tell_numbers_apart(model: LLaDAForMaskedLM, tokenizer: PreTrainedTokenizerBase) -> None:
    """Give the tokens of 0 to 99 waves of their value, in which sums are rotations.

    Trained long enough, models find such features of numbers themselves; starting with them saves
    most of that time.
    """
    number = torch.arange(100.0)[:, None]
    angle = 2 * math.pi * number / torch.tensor(PERIODS)
    waves = torch.cat([angle.cos(), angle.sin()], dim=1)  # (100, 2 * periods)
    weights = dict(model.named_parameters())
    vocabulary = tokenizer.get_vocab()
    shape = (model.config.d_model, waves.shape[1])
    read, write = (torch.linalg.qr(torch.randn(shape))[0].T for _ in range(2))
    for prefix in ("", "Ġ"):
        ids = [vocabulary[f"{prefix}{n}"] for n in range(100)]
        weights["model.embed_tokens.weight"][ids] *= 0.6
        weights["model.embed_tokens.weight"][ids] += 2.0 * waves @ read
        weights["lm_head.weight"][ids] += 0.1 * waves @ write
