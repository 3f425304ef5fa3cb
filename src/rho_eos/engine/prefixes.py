"""Finished blocks that later requests may begin with: the same system prompt, the next turn.

Keys and values of a block depend on the tokens up to its end alone. So those of two rows are the
same where their tokens are, and a block is found by the tokens in it and in all blocks before it.
"""

from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
import torch


class Prefixes:
    """Kept blocks, the least recently used one first."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[bytes, torch.Tensor] = OrderedDict()
        self.positions = 0  # of all blocks

    def find(self, tokens: np.ndarray, length: int) -> list[torch.Tensor]:
        """The blocks that a row with these tokens begins with, as far as they are kept."""
        found: list[bytes] = []
        for name in _names(tokens, length):
            if name not in self._blocks:
                break
            found.append(name)
        for name in reversed(found):  # a block is of no use without those before it
            self._blocks.move_to_end(name)
        return [self._blocks[name] for name in found]

    def add(self, tokens: np.ndarray, length: int, kept: torch.Tensor, most: int) -> None:
        """Keep the whole blocks of a row, within `most` positions together.

        Args:
            tokens: Those of the row, as far as they are final.
            length: Positions in a block.
            kept: (layers, 2, positions, heads, head_dim), the keys and values of the row.
            most: So many positions may be kept.
        """
        names = list(_names(tokens, length))[: max(0, most) // length]
        for number, name in enumerate(names):
            if name not in self._blocks:
                at = slice(number * length, (number + 1) * length)
                self._blocks[name] = kept[:, :, at].clone()
                self.positions += length
        for name in reversed(names):
            self._blocks.move_to_end(name)
        self.shrink(most)

    def shrink(self, most: int) -> None:
        """Forget what was not used for longest, until at most so many positions are kept."""
        while self.positions > max(0, most) and self._blocks:
            _, block = self._blocks.popitem(last=False)
            self.positions -= block.shape[2]


def _names(tokens: np.ndarray, length: int) -> Iterator[bytes]:
    """The name of each whole block: a digest of all tokens up to its end."""
    name = str(length).encode()
    whole = np.ascontiguousarray(tokens[: len(tokens) // length * length], dtype=np.int64)
    for block in whole.reshape(-1, length):
        name = blake2b(name + block.tobytes(), digest_size=16).digest()
        yield name
