"""Attention over packed rows: several sequences in one (1, tokens) batch, none seeing another.

Of all layers only attention needs to know where one row ends and the next begins. This module is
registered with transformers as the attention implementation `rho_eos_packed`, so that transformers'
decoder layers call it. Given `rows` it attends within each row; without, to all positions.
"""

from dataclasses import dataclass
from inspect import signature
from typing import Any, Protocol

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

PACKED = "rho_eos_packed"


class Store(Protocol):
    """Keeps the keys and values of one row from forward to forward."""

    def update(
        self, layer: int, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]: ...


@dataclass(frozen=True)
class PackedRows:
    """Where the rows of a packed batch lie. The varlen kernel wants `cu_seqlens`."""

    lengths: tuple[int, ...]
    stores: tuple[Store | None, ...] = ()  # of rows whose keys and values are kept
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
    keys, values = [key], [value]
    if any(rows.stores) or rows.cu_seqlens is None:
        keys, values = _whole_rows(module, key, value, rows)
    if rows.cu_seqlens is not None:
        return _varlen_kernel(query, keys, values, rows, scaling, grouped), None
    outputs = [
        scaled_dot_product_attention(q, k, v, scale=scaling, enable_gqa=grouped)
        for q, k, v in zip(query.split(rows.lengths, dim=2), keys, values, strict=True)
    ]
    return torch.cat(outputs, dim=2).transpose(1, 2), None


def _whole_rows(
    module: torch.nn.Module, key: torch.Tensor, value: torch.Tensor, rows: PackedRows
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The keys and values that each row's queries meet: what was computed, and what is kept."""
    keys, values = list(key.split(rows.lengths, dim=2)), list(value.split(rows.lengths, dim=2))
    for number, store in enumerate(rows.stores):
        if store is not None:
            keys[number], values[number] = store.update(
                module.layer_idx,  # type: ignore[arg-type]
                keys[number],
                values[number],
            )
    return keys, values


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
    keys: list[torch.Tensor],  # of all rows as one, or of each row where some are kept
    values: list[torch.Tensor],
    rows: PackedRows,
    scaling: float | None,
    grouped: bool,
) -> torch.Tensor:
    """One kernel call for all rows. With kept keys nobody has run it on a GPU yet."""
    from torch.nn.attention.varlen import varlen_attn

    assert rows.cu_seqlens is not None
    ends, longest = rows.cu_seqlens, max(rows.lengths)
    if any(rows.stores):
        lengths = [key.shape[2] for key in keys]
        ends = torch.tensor([0, *lengths], device=query.device).cumsum(0, dtype=torch.int32)
        longest = max(lengths)
    packed = varlen_attn(
        query[0].transpose(0, 1),  # (tokens, heads, head_dim)
        torch.cat(keys, dim=2)[0].transpose(0, 1),
        torch.cat(values, dim=2)[0].transpose(0, 1),
        rows.cu_seqlens,
        ends,
        max(rows.lengths),
        longest,
        scale=scaling,
        enable_gqa=grouped,
        num_splits=1,  # split-KV would let batch mates change the order of summation
    )
    assert isinstance(packed, torch.Tensor)
    return packed.unsqueeze(0)


AttentionInterface.register(PACKED, packed_attention)
AttentionMaskInterface.register(PACKED, sdpa_mask)
