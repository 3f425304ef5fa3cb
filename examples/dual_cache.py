r"""A cache of one's own: Fast-dLLM's dual cache (arXiv 2505.22618, written from the paper).

rho-eos generate "Eva has 7 keys. 1) wins 8. How many are there now?" --policy fixed \
    --initial-length 256 --plugin examples/dual_cache.py --cache dual

The first forward in a block computes everything; the others compute the block and nothing else,
and see what the first one kept. It is for models whose prediction is read in its own place; a model
with shifted predictions would need the position before the block, too.
"""

import numpy as np

from rho_eos import Cache, Canvas, SpecialTokens, register_cache


@register_cache
class DualCache(Cache):
    """The first step in a block computes everything, the others only the block."""

    name = "dual"

    def __init__(self, params: object, special: SpecialTokens) -> None:
        super().__init__(params, special)
        self.block = -1  # where the block begins that the last step wrote in

    def positions(self, canvas: Canvas) -> np.ndarray | None:
        first, end = canvas.open_block(getattr(self.params, "block_length", None))
        moved_on, self.block = first != self.block, first
        if self.stale or moved_on:
            return None
        return len(canvas.prompt) + np.arange(first, end)

    def moved(self, moved: np.ndarray, canvas: Canvas) -> None:
        self.stale = True  # what is kept stands in other places now
