"""What a step did, as traces, live views and plots are told."""

import math
from dataclasses import dataclass

import numpy as np

from rho_eos.base.outputs import StepRecord
from rho_eos.decoding.canvas import Canvas, Positions
from rho_eos.decoding.edits import Append, Edit, runs
from rho_eos.decoding.policy import Step
from rho_eos.decoding.prediction import Prediction
from rho_eos.decoding.signal import density


@dataclass(frozen=True, slots=True)
class Done:
    """A step of one row that has been carried out."""

    before: Canvas
    prediction: Prediction
    step: Step
    commit: Positions
    edits: tuple[Edit, ...]  # none where the step's commits finished the text
    moved: np.ndarray | None  # (L',) int64, for each new cell the old position; None: no edit
    after: Canvas
    refresh: bool
    computed: int  # positions that its forward evaluated
    exact: int  # and would have without a cache

    def record(self) -> StepRecord:
        before, chosen = self.before, self.prediction.at(self.commit)
        committed = zip(
            chosen.positions.tolist(),
            chosen.token.tolist(),
            chosen.confidence.tolist(),
            strict=True,
        )
        return StepRecord(
            step=before.step,
            length=before.length,
            masks=len(before.masked),
            rho=density(before, self.prediction) if self.refresh else None,
            signal=_number(self.step.signal),
            action=_name(self.edits),
            change=self.after.length - before.length,
            computed=self.computed,
            exact=self.exact,
            refresh=self.refresh,
            committed=tuple(committed),
            moved=None if self.moved is None else tuple(runs(self.moved)),
            written=() if self.moved is None else self._written(chosen, self.moved),
            note=f"{self.step.note}",
        )

    def _written(self, chosen: Prediction, moved: np.ndarray) -> tuple[tuple[int, int | None], ...]:
        """What edits put on the canvas beyond new MASKs."""
        mask, cells = self.before.special.mask, self.before.cells.copy()
        cells[self.commit] = chosen.token
        expected = np.where(moved < 0, mask, cells[moved] if len(cells) else moved)
        now = self.after.cells
        return tuple(
            (int(at), None if now[at] == mask else int(now[at]))
            for at in np.flatnonzero(now != expected)
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
