"""Keys and values of rows, kept on the device between steps.

What a row keeps is one allocation for all layers. It grows in blocks and goes when the row leaves.
Keys are kept rotated, so an append or a trim moves nothing, and after any other edit all positions
are computed anew.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rho_eos.engine.prefixes import Prefixes

BLOCK = 128  # positions by which an allocation grows


@dataclass(slots=True, eq=False)
class RowStore:
    """What is kept of one row, and what the forward under way does with it."""

    kept: torch.Tensor  # (layers, 2, kv_heads, capacity, head_dim)
    length: int = 0  # positions of the row in this forward
    computed: torch.Tensor | None = None  # (n,) int64, those that are computed; None: all

    def update(
        self, layer: int, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write what was computed, (1, kv_heads, n, head_dim), and return the whole row's."""
        keys, values = self.kept[layer]
        if self.computed is None:
            keys[:, : self.length], values[:, : self.length] = key[0], value[0]
        else:
            keys.index_copy_(1, self.computed, key[0])
            values.index_copy_(1, self.computed, value[0])
        return keys[None, :, : self.length], values[None, :, : self.length]


class Stores:
    """The keys and values of all rows, within a limit."""

    def __init__(self, model: Any, megabytes: int) -> None:
        config = model.config
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or (
            config.hidden_size // config.num_attention_heads
        )
        self.shape = (config.num_hidden_layers, 2, heads, width)
        self.dtype, self.device = model.dtype, model.device
        self.bytes_per_position = int(np.prod(self.shape)) * self.dtype.itemsize
        self.limit = megabytes * 2**20 // self.bytes_per_position  # positions
        self.used = 0  # positions allocated
        self.refused = 0  # rows that found no room
        self.prefixes = Prefixes()  # they take what rows leave of the limit
        self._stores: dict[object, RowStore] = {}

    def store(self, key: object, length: int) -> RowStore | None:
        """The store under this key with room for `length` positions; None: there is no room."""
        store = self._stores.get(key)
        capacity = 0 if store is None else store.kept.shape[3]
        if length <= capacity:
            return store
        wanted = -(-length // BLOCK) * BLOCK
        if self.used - capacity + wanted > self.limit:
            self.refused += 1
            self.release(key)
            return None
        self.prefixes.shrink(self.limit - self.used + capacity - wanted)
        layers, pair, heads, width = self.shape
        # Zeros, not whatever lay there: what was never computed must not be NaN.
        kept = torch.zeros(
            (layers, pair, heads, wanted, width), dtype=self.dtype, device=self.device
        )
        if store is not None:
            kept[:, :, :, :capacity] = store.kept
        self.used += wanted - capacity
        self._stores[key] = RowStore(kept)
        return self._stores[key]

    def release(self, key: object) -> None:
        store = self._stores.pop(key, None)
        if store is not None:
            self.used -= store.kept.shape[3]

    def begin_with(self, key: object, tokens: np.ndarray, length: int) -> int:
        """Copy the blocks of `length` that a row begins with from what other rows have left.

        Returns:
            How many positions they are.
        """
        blocks = self.prefixes.find(tokens, length)
        if blocks:
            shared = torch.cat(blocks, dim=3)
            self._stores[key].kept[:, :, :, : shared.shape[3]] = shared
        return len(blocks) * length

    def share(self, key: object, tokens: np.ndarray, length: int) -> None:
        """Keep the finished blocks of a row, whose tokens these are, for other rows."""
        if key in self._stores:
            self.prefixes.add(tokens, length, self._stores[key].kept, self.limit - self.used)
