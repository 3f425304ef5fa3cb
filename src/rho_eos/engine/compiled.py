"""`--compile`: the layers through torch.compile, and batches in sizes that recur.

Compiled is what stands between two attentions: norms, projections, MLP. Attention stays outside, so
how many rows there are and how many keys each of them sees changes nothing that is compiled. The
one size that does is the number of positions, and it is rounded up with a row that nobody reads. On
CUDA the pieces become CUDA graphs, which is for window steps, whose kernels are shorter than the
launches of them: written to torch's documentation, not tried. On a CPU it does not pay
(docs/cache.md).
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from rho_eos.engine.batch import PackedBatch
from rho_eos.models.attention import PACKED, AttentionInterface, packed_attention

LEAST = 64  # positions in the smallest batch


def compile_layers(model: Any, backend: Any = "inductor") -> None:
    """In place; the first forwards of each size take long."""
    AttentionInterface.register(PACKED, torch.compiler.disable(packed_attention))
    on_cuda = model.device.type == "cuda"
    mode = "reduce-overhead" if on_cuda and backend == "inductor" else None
    for layer in model.model.layers:
        layer.compile(backend=backend, dynamic=not on_cuda, mode=mode)


def rounded(positions: int) -> int:
    """The size of batch that so many positions take: at most 64, or an eighth, more."""
    step = max(LEAST, (1 << (positions - 1).bit_length()) // 16)
    return -(-positions // step) * step


def filled(batch: PackedBatch, mask: int) -> PackedBatch:
    """With a last row of MASKs up to such a size."""
    more = rounded(len(batch.input_ids)) - len(batch.input_ids)
    if not more:
        return batch
    return replace(
        batch,
        input_ids=np.concatenate((batch.input_ids, np.full(more, mask))),
        position_ids=np.concatenate((batch.position_ids, np.arange(more))),
        row_lengths=(*batch.row_lengths, more),
    )
