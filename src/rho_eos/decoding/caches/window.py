"""The window cache (docs/cache.md): most steps compute the block that is being written."""

import numpy as np

from rho_eos.base.settings import Settings, setting
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.cache import Cache
from rho_eos.decoding.canvas import Canvas, Positions, no_positions
from rho_eos.decoding.params import LONGEST
from rho_eos.decoding.prediction import Prediction
from rho_eos.decoding.registry import register_cache


class WindowParams(Settings):
    cache_window: int = setting(
        32, "without blocks: MASKs that a window step computes", ge=1, le=LONGEST
    )
    cache_commits: int = setting(48, "refresh after so many commits", ge=1, le=LONGEST)
    cache_steps: int = setting(24, "refresh after so many steps", ge=1, le=LONGEST)
    cache_unsure: float = setting(
        0.0, "refresh after a commit less confident than this", ge=0, le=1
    )


@register_cache
class Window(Cache):
    """Most steps compute the block that is being written, and every so often all positions."""

    name = "window"
    Params = WindowParams
    params: WindowParams

    def __init__(self, params: WindowParams, special: SpecialTokens) -> None:
        super().__init__(params, special)
        self.steps = 0  # since the last refresh
        self.commits = 0
        self.sees_end = False  # an end of text is committed, or was predicted in the last step
        self.block = -1  # the first cell of the block that the last step wrote in
        self.computed = self.written = self.new = no_positions().astype(bool)  # (L,) of each cell:
        #   whether the last forward computed it; whether it was written since it was computed, and
        #   whether it never was.

    def positions(self, canvas: Canvas) -> Positions | None:
        if self.stale or not len(canvas.masked):
            return None
        first, end = self._window(canvas)
        if end == canvas.length and not self.sees_end and not len(canvas.suffix):
            return None  # the canvas may have to grow, which only a refresh can tell
        computed = self.new.copy()
        computed[first:end] = True
        if first != self.block:  # what was written before is computed once more, then left alone
            computed |= self.written
        self.block, self.computed = first, computed
        start = len(canvas.prompt)
        wanted = np.zeros(canvas.row_length, dtype=bool)
        wanted[start : start + canvas.length] = computed
        wanted[max(0, start + first - 1)] = True  # a shifted prediction is read there
        return None if wanted.all() else np.flatnonzero(wanted)

    def _window(self, canvas: Canvas) -> tuple[int, int]:
        """The first and the end of the cells that are being written."""
        masked = canvas.masked
        size: int | None = getattr(self.params, "block_length", None)
        if size is None:
            return int(masked[0]), int(masked[: self.params.cache_window][-1]) + 1
        return canvas.open_block(size)

    def refreshed(self, canvas: Canvas) -> None:
        self.stale = False
        self.steps = self.commits = 0
        self.computed = np.ones(canvas.length, dtype=bool)
        self.written = np.zeros(canvas.length, dtype=bool)
        self.new = np.zeros(canvas.length, dtype=bool)

    def committed(self, canvas: Canvas, prediction: Prediction, changed: Positions) -> None:
        params, is_end = self.params, self.special.is_end
        self.written &= ~self.computed
        self.new &= ~self.computed
        self.written[changed] = True
        self.steps += 1
        self.commits += len(changed)
        committed = prediction.among(np.intersect1d(changed, canvas.masked, assume_unique=True))
        sure = prediction.at(committed).confidence
        unsure = len(sure) > 0 and float(sure.min()) < params.cache_unsure
        full = self.steps >= params.cache_steps or self.commits >= params.cache_commits
        self.stale = self.stale or full or unsure
        predicted = prediction.at(prediction.among(canvas.masked)).token
        self.sees_end = bool(is_end(predicted).any() or is_end(canvas.cells).any())

    def moved(self, moved: np.ndarray, canvas: Canvas) -> None:
        """An append or a trim leaves all other cells where they were; what else moves is stale."""
        same_length = len(moved) == len(self.new)
        kept = moved[moved >= 0]
        in_place = np.array_equal(moved[: len(kept)], np.arange(len(kept)))
        old = np.maximum(moved, 0)
        self.written = np.where(moved >= 0, self.written[old], False)
        self.new = np.where(moved >= 0, self.new[old], True)
        # What stands behind the canvas moves with its end.
        self.stale = self.stale or not in_place or (len(canvas.suffix) > 0 and not same_length)
        self.sees_end = self.sees_end or bool(self.special.is_end(canvas.cells).any())
