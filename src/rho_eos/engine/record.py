"""What a step did, as traces, live views and plots are told."""

import math
from dataclasses import dataclass

import numpy as np

from rho_eos.base.outputs import StepRecord
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.edits import Append, Edit, runs
from rho_eos.decoding.policy import Prediction, Step, View
from rho_eos.decoding.signal import density


@dataclass(frozen=True, slots=True)
class Done:
    """A step of one row that has been carried out."""

    view: View  # before it
    prediction: Prediction
    step: Step
    edits: tuple[Edit, ...]  # none where the step's commits finished the text
    moved: np.ndarray | None  # (L',) int64, for each new position the old one; None: no edit
    canvas: np.ndarray  # (L',) int64, after it
    refresh: bool
    computed: int  # positions that its forward evaluated
    exact: int  # and would have without a cache

    def record(self, special: SpecialTokens) -> StepRecord:
        view, chosen = self.view, self.prediction.at(self.step.commit)
        committed = zip(
            chosen.positions.tolist(),
            chosen.token.tolist(),
            chosen.confidence.tolist(),
            strict=True,
        )
        return StepRecord(
            step=view.step,
            length=view.length,
            masks=int(np.count_nonzero(view.canvas == special.mask)),
            rho=density(view, self.prediction, special.eos) if self.refresh else None,
            signal=_number(self.step.signal),
            action=_name(self.edits),
            change=len(self.canvas) - view.length,
            computed=self.computed,
            exact=self.exact,
            refresh=self.refresh,
            committed=tuple(committed),
            moved=None if self.moved is None else tuple(runs(self.moved)),
            written=() if self.moved is None else self._written(chosen, self.moved, special.mask),
            note=f"{self.step.note}",
        )

    def _written(
        self, chosen: Prediction, moved: np.ndarray, mask: int
    ) -> tuple[tuple[int, int | None], ...]:
        """What edits put on the canvas beyond new MASKs."""
        before = self.view.canvas.copy()
        before[self.step.commit] = chosen.token
        expected = np.where(moved < 0, mask, before[moved] if len(before) else moved)
        return tuple(
            (int(at), None if self.canvas[at] == mask else int(self.canvas[at]))
            for at in np.flatnonzero(self.canvas != expected)
        )


def _number(signal: float | None) -> float | None:
    """Other people's policies may give any number; JSON has neither NaN nor infinity."""
    return float(signal) if signal is not None and math.isfinite(signal) else None


def _name(edits: tuple[Edit, ...]) -> str:
    """The first edit in a word."""
    if not edits:
        return "hold"
    closes = isinstance(edits[0], Append) and edits[0].token is not None
    return "close" if closes else edits[0].verb
