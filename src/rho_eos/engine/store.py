"""Keys and values of rows, kept on the device between steps.

All rows share one allocation, so that attention reads them in place, in one kernel call where the
device has one. It is made when the first row needs it. A row has consecutive positions of it, which
grow in pages and are free again when the row leaves. Keys are kept rotated: an append or a trim
moves nothing, and after any other edit all are computed anew.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch

from rho_eos.decoding.sampling import to_device
from rho_eos.engine.memory import give_back, is_out_of_memory
from rho_eos.engine.prefixes import Prefixes
from rho_eos.models.attention import PAGE, Kept, wants_varlen_kernel

BLOCK = 128  # positions by which a row's place grows, where no kernel asks for whole pages
PREFIXES = 4  # the share of the limit that finished blocks have for themselves: one in so many


class Place(NamedTuple):
    """Positions that a row has."""

    first: int
    size: int


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
        self.page = PAGE if wants_varlen_kernel(self.device, self.dtype) else BLOCK
        self.bytes_per_position = int(np.prod(self.shape)) * self.dtype.itemsize
        self.limit = megabytes * 2**20 // self.bytes_per_position  # positions, also of blocks
        self.refused = 0  # rows that found no room
        self.prefixes = Prefixes()
        self.shares = False  # whether finished blocks of rows are kept for others
        self._slab: torch.Tensor | None = None  # (layers, 2, positions, heads, width)
        self._places: dict[object, Place] = {}

    @property
    def used(self) -> int:
        """Positions that rows have."""
        return sum(place.size for place in self._places.values())

    def place(self, key: object, length: int) -> Place | None:
        """Room for `length` positions under this key; None: there is none."""
        own = self._places.get(key)
        if own is not None and length <= own.size:
            return own
        wanted = -(-length // self.page) * self.page
        try:
            first = self._find(key, own, wanted)
            if first is not None:
                self._settle(key, Place(first, wanted))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            first = None
        if first is None:
            self.refused += 1
            self.release(key)
            return None
        return self._places[key]

    def release(self, key: object) -> None:
        self._places.pop(key, None)
        if not self._places and self._slab is not None and self._slab.shape[2] < self._rows_limit:
            self._slab = None  # there was no memory for more; there may be now

    def kept(
        self, keys: Sequence[object], lengths: Sequence[int], computed: Sequence[np.ndarray | None]
    ) -> Kept | None:
        """Where the rows of a batch are kept; a key of None: nothing of it is.

        Args:
            keys: That of each row.
            lengths: Its positions, computed or not.
            computed: Which of them are computed in this forward; None: all.
        """
        places = [None if key is None else self._places[key] for key in keys]
        if not any(places):
            return None
        assert self._slab is not None
        into, tokens, start = [], [], 0
        for place, length, own in zip(places, lengths, computed, strict=True):
            own = np.arange(length) if own is None else own
            if place is not None:
                into.append(place.first + own)
                tokens.append(np.arange(start, start + len(own)))
            start += len(own)
        some = None if all(places) else to_device(np.concatenate(tokens), self.device)
        rows = tuple(
            None if place is None else slice(place.first, place.first + length)
            for place, length in zip(places, lengths, strict=True)
        )
        return Kept(self._slab, rows, to_device(np.concatenate(into), self.device), some)

    def begin_with(self, key: object, tokens: np.ndarray, length: int) -> int:
        """Copy the blocks of `length` that a row begins with from what other rows have left.

        Returns:
            How many positions they are.
        """
        blocks = self.prefixes.find(tokens, length)
        if blocks:
            count = len(blocks) * length
            self._of(Place(self._places[key].first, count)).copy_(torch.cat(blocks, dim=2))
        return len(blocks) * length

    def share(self, key: object, tokens: np.ndarray, length: int) -> None:
        """Keep the finished blocks of a row, whose tokens these are, for other rows."""
        if key in self._places:
            most = self.limit // PREFIXES
            self.prefixes.add(tokens, length, self._of(self._places[key]), most)

    @property
    def _rows_limit(self) -> int:
        """Positions of the slab, in whole pages."""
        of_blocks = self.limit // PREFIXES if self.shares else 0
        return (self.limit - of_blocks) // self.page * self.page

    def _of(self, place: Place) -> torch.Tensor:
        """(layers, 2, positions, heads, width), a view."""
        assert self._slab is not None
        return self._slab[:, :, place.first : place.first + place.size]

    def _find(self, key: object, own: Place | None, wanted: int) -> int | None:
        """Where so many positions are free, if need be after moving rows together."""
        if self._slab is None:
            self._slab = self._allocate()
        end = min(self._slab.shape[2], self._rows_limit)
        others = sorted(place for other, place in self._places.items() if other != key)
        if sum(place.size for place in others) + wanted > end:
            return None
        first = 0
        for place in (*others, Place(end, 0)):
            if own is not None and first <= own.first <= place.first:
                if own.first + wanted <= place.first:
                    return own.first
            elif first + wanted <= place.first:
                return first
            first = place.first + place.size
        return self._tidy(key)

    def _tidy(self, key: object) -> int:
        """Lay rows end to end; returns what is free behind them, where this row is then moved."""
        own = self._places.pop(key, None)
        content = None if own is None else self._of(own).clone()
        first = 0
        for other, place in sorted(self._places.items(), key=itemgetter(1)):
            if place.first != first:
                moved = self._of(place).clone()
                self._places[other] = Place(first, place.size)
                self._of(self._places[other]).copy_(moved)
            first += place.size
        if own is not None and content is not None:
            self._places[key] = Place(first, own.size)
            self._of(self._places[key]).copy_(content)
        return first

    def _settle(self, key: object, place: Place) -> None:
        """Give a row its place. Zeros, not whatever lay there: what was never computed must not be
        NaN."""
        own = self._places.get(key, Place(place.first, 0))
        if own.first != place.first:
            self._of(Place(place.first, own.size)).copy_(self._of(own))
        self._of(Place(place.first + own.size, place.size - own.size)).zero_()
        self._places[key] = place

    def _allocate(self) -> torch.Tensor:
        """As much as the limit says, or as there is: half of it, or a quarter, and so on."""
        layers, pair, heads, width = self.shape
        positions = self._rows_limit
        while True:
            try:
                shape = (layers, pair, positions, heads, width)
                return torch.empty(shape, dtype=self.dtype, device=self.device)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or not positions:
                    raise
            give_back()
            positions = positions // 2 // self.page * self.page
