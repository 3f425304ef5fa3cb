"""The cache of block diffusion models (docs/cache.md). It is exact: finished blocks stay."""

from typing import Literal

import numpy as np

from rho_eos.base.settings import Settings, setting
from rho_eos.decoding.cache import BlockCache
from rho_eos.decoding.canvas import Canvas, Positions
from rho_eos.decoding.registry import register_cache


class BlocksParams(Settings):
    cache_store: Literal["fused", "separate"] = setting(
        "fused",
        "a finished block is computed once more, clean: in the first forward of the next block, "
        "or in a forward of its own",
    )


@register_cache
class Blocks(BlockCache):
    """Computes the open block; finished blocks of a block diffusion model are kept for ever."""

    name = "blocks"
    Params = BlocksParams
    params: BlocksParams

    def positions(self, canvas: Canvas) -> Positions:
        prompt = len(canvas.prompt)
        self.end = prompt + canvas.visible
        if self.params.cache_store == "separate" and not canvas.opens:
            assert canvas.blocks is not None
            first, _ = canvas.open_block(canvas.blocks.length)
            open_start = self.block_start(canvas, prompt + first)
            self.end = open_start if self.final < open_start else self.end
        start = self.final
        if canvas.opens:  # what is read stands at the end of a block that may be kept already
            start = min(start, self.block_start(canvas, self.end - 1))
        return np.arange(start, self.end)
