"""What is computed: the seam of caches.

A cache decides which positions of a row the next forward computes, and when one computes them all
(a refresh). What is kept of the others are the keys and values of the last forward that computed
them (`engine/store.py`). Every decision is made from the row alone, so a cached row gives the same
tokens in any batch.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from rho_eos.base.settings import Settings
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.canvas import Canvas, Positions
from rho_eos.decoding.prediction import Prediction


class Cache(ABC):
    """Subclass it, set `name`, write `positions`, and register it with `register_cache`.

    One is created for each request. The first line of its docstring says what it does. The engine
    asks for `positions` before each forward and tells it afterwards what happened, in this order:
    `refreshed` where all was computed, `committed`, `moved` where the canvas was edited.
    """

    name: ClassVar[str]
    #: Its parameters: a subclass of `Settings` with fields made by `setting`.
    Params: ClassVar[type[Settings]] = Settings
    #: Whether it is for block diffusion models, and for them only.
    for_blocks: ClassVar[bool] = False
    #: The next forward must compute everything. The engine sets it too, where a row needs that.
    stale: bool = True

    def __init__(self, params: Any, special: SpecialTokens) -> None:
        self.params = params
        self.special = special

    @abstractmethod
    def positions(self, canvas: Canvas) -> Positions | None:
        """The positions of the row (prompt, cells, suffix) to compute next; None: all of them.

        They must hold the first MASK, and the position on its left for models whose prediction is
        read there. A policy sees the MASKs among them.
        """

    def refreshed(self, canvas: Canvas) -> None:  # noqa: ARG002
        """All positions of this canvas were just computed."""
        self.stale = False

    def committed(  # noqa: B027 (not every cache wants to know)
        self, canvas: Canvas, prediction: Prediction, changed: Positions
    ) -> None:
        """A step has written the cells `changed`; `prediction` is what it saw before that."""

    def moved(self, moved: np.ndarray, canvas: Canvas) -> None:  # noqa: B027 (likewise)
        """The canvas was edited: for each cell of it the old position, or -1."""


class BlockCache(Cache):
    """What caches of block diffusion models share: how far what is kept is final.

    Keys and values of a block depend on the tokens up to its end and on nothing behind it. So they
    are final as soon as a forward has computed them from final tokens.
    """

    for_blocks = True
    final: int = 0  # positions of the row, from its first, whose keys and values are final
    end: int = 0  # the position behind the last one that the forward under way computes

    @staticmethod
    def block_start(canvas: Canvas, position: int) -> int:
        """Where the block begins that holds this position of the row."""
        assert canvas.blocks is not None
        length, offset = canvas.blocks.length, canvas.blocks.offset(len(canvas.prompt))
        return max(0, (position + offset) // length * length - offset)

    def committed(self, canvas: Canvas, prediction: Prediction, changed: Positions) -> None:  # noqa: ARG002
        """What was computed is final up to the first cell that was MASK then, or was written."""
        first = min([canvas.visible, *canvas.masked[:1], *changed[:1]])
        settled = min(self.end, len(canvas.prompt) + int(first))
        self.final = max(self.final, self.block_start(canvas, settled))
