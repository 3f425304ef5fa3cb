"""What a row asks of a forward: canvases, the positions that are computed, those that are read."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rho_eos.decoding.canvas import Canvas, Positions
from rho_eos.decoding.prediction import Probe
from rho_eos.engine.batch import RowInput


@dataclass(frozen=True, slots=True)
class Asked:
    """One canvas of a forward: a row's own, or one of its probes."""

    canvas: Canvas
    input: RowInput
    tokens: np.ndarray | None = None  # whose probability a probe asks for
    is_probe: bool = False
    greedy: bool = False  # its best tokens are taken, whatever the temperature is


@dataclass(frozen=True, slots=True)
class Forward:
    """A row's own canvas, then its probes."""

    asked: tuple[Asked, ...]
    of_policy: int  # how many of the probes are the policy's; the others are the commit rule's
    copies: int  # how often each canvas is forwarded: once more where there is guidance

    @classmethod
    def of(
        cls,
        canvas: Canvas,
        wanted: Positions,
        computed: Positions | None,
        probes: Sequence[Probe],
        of_policy: int,
        cfg_scale: float,
    ) -> "Forward":
        """Read `wanted` cells of a canvas of which `computed` positions are computed (None: all),
        and what each probe reads."""
        own = Asked(canvas, _input(canvas, wanted, cfg_scale, computed), greedy=canvas.opens)
        others = (
            Asked(each.canvas, _input(each.canvas, each.read, cfg_scale), each.tokens, True)
            for each in probes
        )
        return cls((own, *others), of_policy, 1 + (cfg_scale > 0))

    @property
    def computed(self) -> Positions | None:
        """The positions of the row that are computed; None: all."""
        return self.asked[0].input.computed

    @property
    def only_keeps(self) -> bool:
        """Whether nothing is predicted: it computes what is kept, and decides nothing."""
        return not len(self.asked[0].input.wanted)

    @property
    def sees_all(self) -> bool:
        """Whether the policy may decide by it: it computes all positions, or a block, which is all
        that a block diffusion model sees."""
        in_blocks = self.asked[0].canvas.blocks is not None and not self.only_keeps
        return self.computed is None or in_blocks

    @property
    def exact_cost(self) -> int:
        """Positions that would be evaluated if all were computed."""
        return self.copies * sum(each.input.length for each in self.asked)

    @property
    def cost(self) -> int:
        """Positions that are evaluated."""
        spared = 0 if self.computed is None else self.asked[0].input.length - len(self.computed)
        return self.exact_cost - self.copies * spared

    @property
    def reads(self) -> int:
        """Positions whose logits are made."""
        return self.copies * sum(len(each.input.wanted) for each in self.asked)


def wanted_cells(canvas: Canvas, computed: Positions | None, whole: bool) -> Positions:
    """The cells whose prediction is read: the MASKs that are computed, or with `whole` all cells.

    Of a block diffusion model they are those of the open block.
    """
    if canvas.opens:
        return canvas.masked[:1]
    first, end = 0, canvas.visible
    if canvas.blocks is not None:
        first, _ = canvas.open_block(canvas.blocks.length)
        # A token that opened its block was read from the block before it, and stays.
        at_start = (first + canvas.before_block) % canvas.blocks.length == 0
        first += canvas.blocks.opens_with_store and at_start
    wanted = np.arange(first, end) if whole else canvas.masked[canvas.masked < end]
    if computed is None:
        return wanted
    return wanted[np.isin(len(canvas.prompt) + wanted, computed)]


def _input(
    canvas: Canvas, wanted: Positions, cfg_scale: float, computed: Positions | None = None
) -> RowInput:
    blocks = None
    if canvas.blocks is not None:
        blocks = canvas.blocks.length, canvas.blocks.offset(len(canvas.prompt))
    cells = canvas.cells[: canvas.visible]
    return RowInput(canvas.prompt, cells, wanted, cfg_scale, computed, canvas.suffix, blocks)
