"""What a step did, as traces, live views and plots are told."""

import math

import numpy as np

from rho_eos.base.outputs import StepRecord
from rho_eos.decoding.canvas import Canvas, Positions
from rho_eos.decoding.curve import Curve
from rho_eos.decoding.edits import Append, Edit, runs
from rho_eos.decoding.policy import Step
from rho_eos.decoding.prediction import Prediction
from rho_eos.decoding.signal import density


def record_of(
    before: Canvas,
    prediction: Prediction,
    step: Step,
    commit: Positions,
    edits: tuple[Edit, ...],
    moved: np.ndarray | None,
    after: Canvas,
    sees_all: bool,
    computed: int,
    exact: int,
    foretells: bool,
    open_positions: bool = False,
) -> StepRecord:
    """A step of one row that has been carried out; `edits` and `moved` as far as they were made.

    With `foretells` it says what the forward says of the length, if that is to be read from it.
    """
    chosen = prediction.at(commit)
    seen = prediction.at(prediction.among(before.masked)) if open_positions else None
    return StepRecord(
        step=before.step,
        length=before.length,
        masks=len(before.masked),
        rho=density(before, prediction) if sees_all else None,
        signal=_number(step.signal),
        action=_name(edits),
        change=after.length - before.length,
        computed=computed,
        exact=exact,
        refresh=sees_all,
        block=None if before.blocks is None else before.open_block(before.blocks.length),
        committed=tuple(
            zip(commit.tolist(), chosen.token.tolist(), chosen.confidence.tolist(), strict=True)
        ),
        moved=None if moved is None else tuple(runs(moved)),
        written=() if moved is None else _written(before, chosen, moved, after.cells),
        note=f"{step.note}",
        foretold=Curve.of(before, prediction).foretold()
        if foretells and sees_all and before.ends_openly
        else None,
        open=() if seen is None else _said(seen),
    )


def _said(seen: Prediction) -> tuple[tuple[int, int, float, float], ...]:
    columns = seen.positions, seen.token, seen.confidence, seen.eos_probability
    return tuple(zip(*(column.tolist() for column in columns), strict=True))


def _written(
    before: Canvas, chosen: Prediction, moved: np.ndarray, now: np.ndarray
) -> tuple[tuple[int, int | None], ...]:
    """What edits put on the canvas beyond new MASKs: (position, token), None for a MASK."""
    mask, cells = before.special.mask, before.cells.copy()
    cells[chosen.positions] = chosen.token
    expected = np.where(moved < 0, mask, cells[moved] if len(cells) else moved)
    return tuple(
        (int(at), None if now[at] == mask else int(now[at]))
        for at in np.flatnonzero(now != expected)
    )


def _number(signal: float | None) -> float | None:
    """A number that JSON has: policies from outside may give NaN or infinity, which become None."""
    return float(signal) if signal is not None and math.isfinite(signal) else None


def _name(edits: tuple[Edit, ...]) -> str:
    """The first edit in a word."""
    if not edits:
        return "hold"
    closes = isinstance(edits[0], Append) and edits[0].token is not None
    return "close" if closes else edits[0].verb
