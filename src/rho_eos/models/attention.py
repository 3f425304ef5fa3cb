"""Attention over packed rows: several sequences in one (1, tokens) batch, none seeing another.

Of all layers only attention needs to know where one row ends and the next begins. This module is
registered with transformers as the attention implementation `rho_eos_packed`. Given `rows` it
attends within each row; without, to all positions.

A row is one span, whose queries all see the same keys, or in a block diffusion model several: a
block sees the blocks before it. There is a kernel call for each span, or one for all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from rho_eos.decoding.sampling import to_device

PACKED = "rho_eos_packed"
#: Positions of a page, as the varlen kernel takes them (FlashAttention 2).
PAGE = 256


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive computed positions of a row that attend together.

    All of them see the first `keys` positions of the row. With a mask, each sees only the blocks up
    to its own.
    """

    count: int
    keys: int
    mask: np.ndarray | None = None  # (count, keys) bool, True: it sees


@dataclass(frozen=True, slots=True)
class Kept:
    """Where keys and values of the rows of a batch are kept: the same places in every layer."""

    slab: torch.Tensor  # (layers, 2, positions, kv_heads, head_dim), of all rows there are
    rows: tuple[slice | None, ...]  # where each row of the batch is; None: nothing is kept of it
    into: torch.Tensor  # (n,) int64, the place of each token that is kept
    tokens: torch.Tensor | None = None  # (n,) int64, which tokens these are; None: all

    def update(
        self, layer: int, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Put (tokens, kv_heads, head_dim) in their places; returns the slab's keys and values."""
        keys, values = self.slab[layer].unbind(0)
        for kept, new in ((keys, key), (values, value)):
            kept.index_copy_(0, self.into, new if self.tokens is None else new[self.tokens])
        return keys, values


@dataclass(frozen=True, slots=True)
class _Piece:
    """A span, where it lies: queries among the tokens, keys among them or in the slab."""

    queries: slice
    keys: slice
    mask: torch.Tensor | None
    is_kept: bool


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of the varlen kernel: some pieces, and where they begin and end on the device."""

    pieces: tuple[_Piece, ...]
    queries: torch.Tensor  # (pieces + 1,) int32
    keys: torch.Tensor  # (pieces + 1,) int32
    most_queries: int
    most_keys: int
    used: torch.Tensor | None = None  # (pieces,) int32, where keys are read from pages
    pages: torch.Tensor | None = None  # (pieces, pages) int32


class PackedRows:
    """Where the rows of a packed batch lie, and what of a row sees what: made once for all layers.

    Args:
        lengths: Queries of each row.
        spans: Those of each row; None: all of it is one.
        kept: Where keys and values are kept, if they are.
        device: Where masks and offsets go.
        varlen: Whether all spans without a mask are one kernel call, or one for each place that
            keys may lie in.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        spans: Sequence[Sequence[Span] | None] = (),
        kept: Kept | None = None,
        device: torch.device | None = None,
        varlen: bool = False,
    ) -> None:
        self.kept = kept
        pieces = []
        rows = kept.rows if kept is not None else (None,) * len(lengths)
        at = 0
        for length, own, row in zip(lengths, spans or (None,) * len(lengths), rows, strict=True):
            whole = row or slice(at, at + length)
            for span in own or (Span(length, _length(whole)),):
                mask = None
                if span.mask is not None:
                    mask = to_device(span.mask, device or torch.device("cpu"))
                keys = slice(whole.start, whole.start + span.keys)
                pieces.append(_Piece(slice(at, at + span.count), keys, mask, row is not None))
                at += span.count
        self._order = {piece.queries.start: number for number, piece in enumerate(pieces)}
        self._alone = [piece for piece in pieces if piece.mask is not None or not varlen]
        self._calls = []
        for is_kept in (False, True) if varlen else ():
            own_pieces = [p for p in pieces if p.mask is None and p.is_kept == is_kept]
            if own_pieces and device is not None:
                self._calls.append(_call(own_pieces, device, is_kept))

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float | None,
    ) -> torch.Tensor:
        """(tokens, heads, head_dim), given three such tensors."""
        slab = None if self.kept is None else self.kept.update(layer, key, value)
        found: list[tuple[_Piece, torch.Tensor]] = []
        for call in self._calls:
            attended = _varlen_kernel(call, query, (key, value), slab, scale)
            if len(call.pieces) == len(self._order):
                return attended
            counts = [_length(piece.queries) for piece in call.pieces]
            found += zip(call.pieces, attended.split(counts), strict=True)
        for piece in self._alone:
            keys, values = slab if piece.is_kept and slab is not None else (key, value)
            own = (query[piece.queries], keys[piece.keys], values[piece.keys])
            found.append((piece, _one_span(*own, piece.mask, scale)))
        found.sort(key=lambda each: self._order[each[0].queries.start])
        return found[0][1] if len(found) == 1 else torch.cat([each for _, each in found])


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,  # (1, heads, tokens, head_dim)
    key: torch.Tensor,  # (1, kv_heads, tokens, head_dim)
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    rows: PackedRows | None = None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return (1, tokens, heads, head_dim), the layout transformers' attention modules expect."""
    if rows is None:
        kwargs["is_causal"] = False
        attended: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return attended
    layer: Any = module.layer_idx
    query, key, value = (part[0].transpose(0, 1) for part in (query, key, value))
    return rows.attend(layer, query, key, value, scaling)[None], None


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
    passed = {"scale", "enable_gqa", "num_splits", "seqused_k", "block_table"}
    return passed <= set(signature(varlen_attn).parameters)


def _one_span(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float | None,
) -> torch.Tensor:
    grouped = query.shape[1] != key.shape[1]
    query, key, value = (each.transpose(0, 1)[None] for each in (query, key, value))
    if query.device.type == "mps" or torch.version.hip is not None:
        # Strided ones gave wrong values there, without an error.
        query, key, value = (each.contiguous() for each in (query, key, value))
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=scale, enable_gqa=grouped
    )[0].transpose(0, 1)


def _call(pieces: Sequence[_Piece], device: torch.device, is_kept: bool) -> _Call:
    counts, keys = ([_length(getattr(p, name)) for p in pieces] for name in ("queries", "keys"))
    ends = [np.cumsum([0, *each], dtype=np.int32) for each in (counts, keys)]
    first, second = (to_device(each, device) for each in ends)
    call = (tuple(pieces), first, second, max(counts), max(keys))
    if not is_kept:
        return _Call(*call)
    pages = np.zeros((len(pieces), -(-max(keys) // PAGE)), dtype=np.int32)
    for own, piece in zip(pages, pieces, strict=True):
        needed = -(-_length(piece.keys) // PAGE)
        own[:needed] = piece.keys.start // PAGE + np.arange(needed)
    used = to_device(np.array(keys, dtype=np.int32), device)
    return _Call(*call, used, to_device(pages, device))


def _varlen_kernel(
    call: _Call,
    query: torch.Tensor,
    computed: tuple[torch.Tensor, torch.Tensor],
    slab: tuple[torch.Tensor, torch.Tensor] | None,
    scale: float | None,
) -> torch.Tensor:
    from torch.nn.attention.varlen import varlen_attn

    if call.pages is None:
        key, value = (_joined(each, [p.keys for p in call.pieces]) for each in computed)
    else:
        assert slab is not None
        key, value = (each.unflatten(0, (-1, PAGE)) for each in slab)
    attended = varlen_attn(
        _joined(query, [p.queries for p in call.pieces]),
        key,
        value,
        call.queries,
        call.keys,
        call.most_queries,
        call.most_keys,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[-2],
        seqused_k=call.used,
        block_table=call.pages,
        num_splits=1,  # split-KV would let batch mates change the order of summation
    )
    assert isinstance(attended, torch.Tensor)
    return attended


def _joined(tensor: torch.Tensor, slices: Sequence[slice]) -> torch.Tensor:
    """These pieces of a tensor; a view where they are one."""
    if all(a.stop == b.start for a, b in pairwise(slices)):
        return tensor[slices[0].start : slices[-1].stop]
    return torch.cat([tensor[each] for each in slices])


def _length(piece: slice) -> int:
    return int(piece.stop - piece.start)


AttentionInterface.register(PACKED, packed_attention)
AttentionMaskInterface.register(PACKED, sdpa_mask)
