"""The embedded model before training: its sizes and its initial weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from rho_eos.models.families.llada import LLaDAConfig
from rho_eos.models.layers.llada import LLaDAForMaskedLM

PERIODS = (2, 5, 10, 20, 50, 100)
ROPE_THETA = 500_000.0
# Of the heads that look things up: how much of every token is the same constant, how many of the
# fast rotations tell a position from its neighbours, and which are slow enough to leave contents
# comparable across a few hundred positions (radians per position).
CONSTANT, GAIN, MATCH = 3.0, 1.4, 1.5
SHARP, SLOW = 4, 0.004
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
    """LLaDA whose layers begin as the identity, except for heads that look things up."""
    config = LLaDAConfig(
        d_model=size.width,
        n_layers=size.layers,
        n_heads=size.heads,
        n_kv_heads=size.heads,
        mlp_hidden_size=size.mlp,
        vocab_size=len(tokenizer),
        max_sequence_length=1024,
        rope_theta=ROPE_THETA,
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
            torch.nn.init.normal_(parameter, std=0.6)
        elif parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.7 / parameter.shape[1] ** 0.5)
    _tell_numbers_apart(model, tokenizer)
    _look_up_labels(model)
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
    read, write = (_orthonormal(waves.shape[1], model.config.d_model // 2) for _ in range(2))
    half = slice(model.config.d_model // 2)
    for prefix in ("", "Ġ"):
        ids = [vocabulary[f"{prefix}{n}"] for n in range(100)]
        weights["model.embed_tokens.weight"][ids] *= 0.6
        weights["model.embed_tokens.weight"][ids, half] += 2.0 * waves @ read
        weights["lm_head.weight"][ids, half] += 0.1 * waves @ write


@torch.no_grad()
def _look_up_labels(model: Any) -> None:
    """Start with induction heads (Olsson et al., 2022), which otherwise take most of the training.

    Token identities keep to the first half of the width, beside a constant. In the first layer,
    head s - 1 attends s positions back and writes what it finds to a part of its own in the second
    half. In the second layer, head s - 1 attends to positions with the same token s positions back
    and brings the token that stands there: behind `3)` in the answer, what is behind `3)` in the
    prompt. All of it is trained on like any other weight.
    """
    half = model.config.d_model // 2
    embedding = model.model.embed_tokens.weight
    embedding[:, half:] = 0.0
    embedding[:, 0] = CONSTANT
    model.lm_head.weight[:, 1:] += 0.1 * embedding[:, 1:]
    shifts = min(3, model.config.n_heads)
    part = half // shifts
    for s in range(1, shifts + 1):
        own = slice(half + (s - 1) * part, half + s * part)
        _attend_back(model.model.layers[0].self_attn, s, own)
        _attend_to_the_same(model.model.layers[1].self_attn, s, own)


def _attend_back(attention: Any, distance: int, own: slice) -> None:
    """Head `distance` - 1: rotations of the constant that agree at exactly this distance."""
    size, half = attention.head_dim, attention.config.d_model // 2
    rows = slice((distance - 1) * size, distance * size)
    part = own.stop - own.start
    angle = distance * _frequencies(size)[:SHARP]
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    query, key, value = (projection.weight[rows].mul_(0.1) for projection in projections)
    query[:SHARP, 0] = GAIN
    key[:SHARP, 0] = GAIN * angle.cos()
    key[size // 2 : size // 2 + SHARP, 0] = GAIN * angle.sin()
    value[:part, 1:half] = _orthonormal(part, half - 1)
    attention.o_proj.weight[own, rows.start : rows.start + part] = torch.eye(part)


def _attend_to_the_same(attention: Any, distance: int, own: slice) -> None:
    """Head `distance` - 1: equal contents of `own`, compared where rotation hardly changes them."""
    size, half = attention.head_dim, attention.config.d_model // 2
    rows = slice((distance - 1) * size, distance * size)
    slow = (_frequencies(size) < SLOW).nonzero()[:, 0]
    slow = torch.cat([slow, slow + size // 2])
    same = torch.zeros(size, own.stop - own.start)
    same[slow] = MATCH * _orthonormal(len(slow), same.shape[1])
    brought = _orthonormal(size, half - 1)
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        projection.weight[rows] *= 0.1
    attention.q_proj.weight[rows, own] = same
    attention.k_proj.weight[rows, own] = same
    attention.v_proj.weight[rows, 1:half] = brought
    attention.o_proj.weight[1:half, rows] = brought.T


def _frequencies(size: int) -> torch.Tensor:
    """(size / 2,) radians by which each pair of a head's dimensions turns from token to token."""
    return ROPE_THETA ** (-torch.arange(0, size, 2) / size)


def _orthonormal(rows: int, columns: int) -> torch.Tensor:
    """A random matrix (rows, columns); its rows, or its columns if fewer, are orthonormal."""
    tall = torch.linalg.qr(torch.randn(max(rows, columns), min(rows, columns)))[0]
    return tall if rows > columns else tall.T
