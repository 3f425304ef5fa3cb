"""Attention over packed rows: several sequences in one (1, tokens) batch, none seeing another.

Of all layers only attention needs to know where one row ends and the next begins. This module is
registered with transformers as the attention implementation `rho_eos_packed`, so that transformers'
decoder layers call it. Given `rows` it attends within each row; without, to all positions.

A row is one span, whose queries all see the same keys, or in a block diffusion model several: a
block sees the blocks before it. There is a kernel call for each span, or one for all of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, Protocol

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from rho_eos.decoding.sampling import to_device

PACKED = "rho_eos_packed"


class Store(Protocol):
    """Keeps the keys and values of one row from forward to forward."""

    def update(
        self, layer: int, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]: ...


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive queries of a row that attend to the first `keys` positions of it."""

    count: int
    keys: int | None  # None: all of them
    mask: torch.Tensor | None = None  # (count, keys) bool, True: it sees; None: all see all


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where spans begin and end, as the varlen kernel wants it: made once for all layers."""

    queries: torch.Tensor  # (spans + 1,) int32, on the device
    keys: torch.Tensor
    most_queries: int
    most_keys: int

    @classmethod
    def of(cls, spans: Sequence[Span], device: torch.device) -> "Offsets":
        counts, keys = ([getattr(span, name) for span in spans] for name in ("count", "keys"))
        ends = np.cumsum([[0, *counts], [0, *keys]], axis=1, dtype=np.int32)
        queries, kept = to_device(ends, device)
        return cls(queries, kept, max(counts, default=0), max(keys, default=0))


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Where the rows of a packed batch lie, and what of a row sees what."""

    lengths: tuple[int, ...]  # queries of each row
    spans: tuple[tuple[Span, ...], ...] = ()  # of each row; none: all of it is one span
    stores: tuple[Store | None, ...] = ()  # of rows whose keys and values are kept
    offsets: Offsets | None = None  # of all spans without a mask; None: there is no varlen kernel


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
    parts = list(_parts(module, query, key, value, rows))
    together: Iterator[torch.Tensor] = iter(())
    if rows.offsets is not None:
        unmasked = [(q, k, v) for q, k, v, mask in parts if mask is None]
        together = iter(_varlen_kernel(unmasked, rows.offsets, scaling, grouped))
    outputs = [
        next(together)
        if mask is None and rows.offsets is not None
        else _one_span(q, k, v, mask, scaling, grouped)
        for q, k, v, mask in parts
    ]
    return torch.cat(outputs, dim=2).transpose(1, 2), None


def _one_span(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float | None,
    grouped: bool,
) -> torch.Tensor:
    if query.device.type == "mps" or torch.version.hip is not None:
        # Strided ones gave wrong values there, without an error.
        query, key, value = (each.contiguous() for each in (query, key, value))
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=scale, enable_gqa=grouped
    )


_Part = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]


def _parts(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    rows: PackedRows,
) -> Iterator[_Part]:
    """For each span its queries, the keys and values they meet, computed or kept, and its mask."""
    stores = rows.stores or (None,) * len(rows.lengths)
    spans_of = rows.spans or tuple((Span(length, None),) for length in rows.lengths)
    split = (each.split(rows.lengths, dim=2) for each in (query, key, value))
    for q, k, v, spans, store in zip(*split, spans_of, stores, strict=True):
        if store is not None:
            k, v = store.update(module.layer_idx, k, v)
        counts = [span.count for span in spans]
        for own, span in zip(q.split(counts, dim=2), spans, strict=True):
            yield own, k[:, :, : span.keys], v[:, :, : span.keys], span.mask


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
    parts: Sequence[tuple[torch.Tensor, torch.Tensor, torch.Tensor]],
    offsets: Offsets,
    scale: float | None,
    enable_gqa: bool,
) -> Sequence[torch.Tensor]:
    """One kernel call for all spans; returns (1, heads, count, head_dim) for each."""
    from torch.nn.attention.varlen import varlen_attn

    if not parts:
        return ()
    query, key, value = (
        torch.cat(each, dim=2)[0].transpose(0, 1)  # (tokens, heads, head_dim)
        for each in zip(*parts, strict=True)
    )
    attended = varlen_attn(
        query,
        key,
        value,
        offsets.queries,
        offsets.keys,
        offsets.most_queries,
        offsets.most_keys,
        scale=scale,
        enable_gqa=enable_gqa,
        num_splits=1,  # split-KV would let batch mates change the order of summation
    )
    assert isinstance(attended, torch.Tensor)
    counts = [each.shape[2] for each, _, _ in parts]
    return attended.transpose(0, 1).unsqueeze(0).split(counts, dim=2)


AttentionInterface.register(PACKED, packed_attention)
AttentionMaskInterface.register(PACKED, sdpa_mask)
