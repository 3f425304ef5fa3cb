"""One request in flight: its prompt, its canvas, its policy, and what it has cost so far."""

import time
from dataclasses import dataclass, field

import numpy as np

from rho_eos.config import DecodeParams
from rho_eos.decoding.policy import (
    Append,
    Edit,
    Hold,
    Insert,
    Policy,
    Positions,
    Prediction,
    SpecialTokens,
    Trim,
    View,
    make_policy,
)
from rho_eos.decoding.signal import density
from rho_eos.outputs import FinishReason, StepRecord, Usage


@dataclass(slots=True, eq=False)
class Sequence:
    id: str
    prompt: np.ndarray  # (P,) int64
    params: DecodeParams
    special: SpecialTokens
    canvas: np.ndarray = field(init=False)  # (L,) int64
    policy: Policy = field(init=False)
    steps: int = 0
    positions_evaluated: int = 0
    committed: int = 0
    expansions: int = 0
    contractions: int = 0
    finish_reason: FinishReason | None = None
    trace: list[StepRecord] = field(default_factory=list)
    arrived: float = field(default_factory=time.perf_counter)
    started: float | None = None

    def __post_init__(self) -> None:
        self.canvas = np.full(self.params.first_length, self.special.mask, dtype=np.int64)
        self.policy = make_policy(self.params, self.special)

    @property
    def masked(self) -> Positions:
        return np.flatnonzero(self.canvas == self.special.mask)

    @property
    def cost(self) -> int:
        """Positions that its next forward evaluates; guidance needs a second row."""
        rows = 2 if self.params.cfg_scale > 0 else 1
        return rows * (len(self.prompt) + len(self.canvas))

    def view(self) -> View:
        return View(self.canvas, self.masked, self.steps)

    def wanted_positions(self) -> Positions:
        """Canvas positions whose prediction the policy needs."""
        return np.arange(len(self.canvas)) if self.policy.needs_whole_canvas else self.masked

    def advance(self, view: View, prediction: Prediction) -> StepRecord:
        """One denoising step: ask the policy, commit, and unless that finished the text, edit."""
        step = self.policy.step(view, prediction)
        self._count_forward()
        self._commit(step.commit, prediction)
        change = 0
        if self.params.early_stop and self._text_is_complete():
            self.finish_reason = FinishReason.STOP
            edit: Edit = Hold()
        else:
            edit = step.edit
            change = self._apply(edit)
            if step.finished or not len(self.masked):
                self.finish_reason = self._reason_at_the_end()
        chosen = prediction.at(step.commit)
        record = StepRecord(
            step=view.step,
            length=view.length,
            masks=len(view.masked),
            rho=density(view, prediction, self.special.eos),
            signal=step.signal,
            action=_name(edit, change),
            change=change,
            at=edit.at if isinstance(edit, Insert) else None,
            inserted=edit.count if isinstance(edit, Insert) else 0,
            committed=tuple(
                zip(
                    chosen.positions.tolist(),
                    chosen.token.tolist(),
                    chosen.confidence.tolist(),
                    strict=True,
                )
            ),
        )
        if self.params.trace:
            self.trace.append(record)
        return record

    def committed_prefix(self) -> np.ndarray:
        """The tokens before the first MASK or end: they are final, so they can be sent."""
        closed = np.isin(self.canvas, (self.special.mask, *self.special.ends))
        return self.canvas[: int(np.argmax(closed))] if closed.any() else self.canvas

    def final_canvas(self) -> np.ndarray:
        """The canvas with what was never decoded behind the end reported as EOS."""
        return np.where(self.canvas == self.special.mask, self.special.eos, self.canvas)

    def usage(self) -> Usage:
        now = time.perf_counter()
        started = self.started if self.started is not None else now
        not_eos = np.flatnonzero(self.final_canvas() != self.special.eos)
        return Usage(
            prompt_tokens=len(self.prompt),
            n_token=len(self.canvas),
            e_token=int(not_eos[-1]) + 1 if len(not_eos) else 0,
            nfe=self.steps,
            positions_evaluated=self.positions_evaluated,
            committed=self.committed,
            expansions=self.expansions,
            contractions=self.contractions,
            seconds_waiting=started - self.arrived,
            seconds_running=now - started,
        )

    def _count_forward(self) -> None:
        self.positions_evaluated += self.cost
        self.steps += 1

    def _commit(self, positions: Positions, prediction: Prediction) -> None:
        if not np.all(self.canvas[positions] == self.special.mask):
            raise AssertionError("a policy may only commit MASK positions")
        self.canvas = self.canvas.copy()  # views of earlier steps stay as they were
        self.canvas[positions] = prediction.at(positions).token
        self.committed += len(positions)

    def _text_is_complete(self) -> bool:
        """No MASK is left before the first committed end: later positions are never returned."""
        ends = np.flatnonzero(np.isin(self.canvas, self.special.ends))
        return len(ends) > 0 and not np.any(self.canvas[: ends[0]] == self.special.mask)

    def _reason_at_the_end(self) -> FinishReason:
        ended = np.isin(self.canvas, self.special.ends).any()
        return FinishReason.STOP if ended else FinishReason.LENGTH

    def _apply(self, edit: Edit) -> int:
        """Edit the canvas and return by how much it grew."""
        before = len(self.canvas)
        mask = self.special.mask
        if isinstance(edit, Append):
            token = self.special.eos if edit.committed_eos else mask
            self.canvas = np.append(self.canvas, np.full(edit.count, token, dtype=np.int64))
        elif isinstance(edit, Insert):
            if self.canvas[edit.at] != mask:
                raise AssertionError("MASKs may only be inserted in place of a MASK")
            grown = np.insert(self.canvas, edit.at, np.full(edit.count - 1, mask, dtype=np.int64))
            self.canvas = grown[: edit.limit]
        elif isinstance(edit, Trim):
            kept, dropped = np.split(self.canvas, [before - edit.count])
            if not edit.cut and np.any(dropped != mask):
                raise AssertionError("contraction may only drop MASKs")
            self.canvas = kept
        change = len(self.canvas) - before
        self.expansions += change > 0
        self.contractions += change < 0
        return change


def _name(edit: Edit, change: int) -> str:
    if isinstance(edit, Insert):
        return "insert"
    if isinstance(edit, Append) and edit.committed_eos:
        return "close"
    return "expand" if change > 0 else "contract" if change < 0 else "hold"
