"""Attention over packed rows: several sequences in one (1, tokens) batch, none seeing another.

Linear layers do not care where one row ends and the next begins; attention does. This module is
registered with transformers as the attention implementation `rho_eos_packed`, so its own decoder
layers call it. Given `rows` it attends within each row; without, it is plain bidirectional SDPA.
"""

from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

PACKED = "rho_eos_packed"


@dataclass(frozen=True)
class PackedRows:
    """Where the rows of a packed batch lie. The varlen kernel wants `cu_seqlens`."""

    lengths: tuple[int, ...]
    cu_seqlens: torch.Tensor | None = None  # (rows + 1,) int32, on the device


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,  # (1, heads, tokens, head_dim)
    key: torch.Tensor,  # (1, kv_heads, tokens, head_dim)
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    rows: PackedRows | None = None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Return (1, tokens, heads, head_dim), the layout transformers' attention modules expect."""
    if rows is None:
        kwargs["is_causal"] = False
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
    grouped = query.shape[1] != key.shape[1]
    if rows.cu_seqlens is not None:
        return _varlen_kernel(query, key, value, rows, scaling, grouped), None
    outputs = [
        scaled_dot_product_attention(q, k, v, scale=scaling, enable_gqa=grouped)
        for q, k, v in zip(
            query.split(rows.lengths, dim=2),
            key.split(rows.lengths, dim=2),
            value.split(rows.lengths, dim=2),
            strict=True,
        )
    ]
    return torch.cat(outputs, dim=2).transpose(1, 2), None


def wants_varlen_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether all rows can be one kernel call: on CUDA, in half precision, since Ampere.

    Elsewhere, on ROCm, and with a torch whose kernel lacks what we pass, a row is one SDPA call.
    """
    if device.type != "cuda" or dtype not in (torch.float16, torch.bfloat16):
        return False
    if torch.version.hip is not None or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return False
    return {"scale", "enable_gqa", "num_splits"} <= set(signature(varlen_attn).parameters)


def _varlen_kernel(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    rows: PackedRows,
    scaling: float | None,
    grouped: bool,
) -> torch.Tensor:
    from torch.nn.attention.varlen import varlen_attn

    assert rows.cu_seqlens is not None
    longest = max(rows.lengths)
    packed = varlen_attn(
        query[0].transpose(0, 1),  # (tokens, heads, head_dim)
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        rows.cu_seqlens,
        rows.cu_seqlens,
        longest,
        longest,
        scale=scaling,
        enable_gqa=grouped,
        num_splits=1,  # split-KV would let batch mates change the order of summation
    )
    assert isinstance(packed, torch.Tensor)
    return packed.unsqueeze(0)


AttentionInterface.register(PACKED, packed_attention)
AttentionMaskInterface.register(PACKED, sdpa_mask)
