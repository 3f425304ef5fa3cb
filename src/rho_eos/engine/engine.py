"""The whole path of a request, in one place: schedule, predict, decide, finish.

    scheduler.next_batch()     who runs now, within a position budget
    runner.predict(batch)      the only place that touches the device
    sequence.advance(…)        the policy commits tokens and changes the length
    finished → Output          text, usage, finish reason

Nothing here knows which policy a sequence follows or what it is batched with.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rho_eos.config import DecodeParams
from rho_eos.decoding.policy import Prediction, SpecialTokens, View
from rho_eos.engine.runner import Runner
from rho_eos.engine.scheduler import Scheduler
from rho_eos.engine.sequence import Sequence
from rho_eos.outputs import FinishReason, Output, StepRecord

Detokenize = Callable[[list[int]], str]


@dataclass(frozen=True, slots=True)
class StepEvent:
    """What one step did to one sequence, and its output if that was the last."""

    sequence: Sequence
    view: View  # the canvas as the model saw it
    prediction: Prediction
    record: StepRecord
    output: Output | None

    @property
    def draft(self) -> np.ndarray:
        """(L,) the canvas the model saw, with its implicit tokens in place of the MASKs."""
        draft = self.view.canvas.copy()
        draft[self.view.masked] = self.prediction.at(self.view.masked).token
        return draft


class Engine:
    def __init__(
        self,
        runner: Runner,
        special: SpecialTokens,
        detokenize: Detokenize,
        max_rows: int = 32,
        max_positions: int = 16384,
    ) -> None:
        self.runner = runner
        self.special = special
        self.detokenize = detokenize
        self.scheduler = Scheduler(max_rows, max_positions)
        self.sequences: dict[str, Sequence] = {}
        self.batch: list[Sequence] = []  # of this step or the last: whose a failure is

    def add(self, id: str, prompt: list[int], params: DecodeParams) -> Sequence:
        """Queue a request; it runs from the next step in which there is room for it."""
        if id in self.sequences:
            raise ValueError(f"request id {id!r} is already in flight")
        sequence = Sequence(id, np.asarray(prompt, dtype=np.int64), params, self.special)
        self.sequences[id] = sequence
        self.scheduler.add(sequence)
        return sequence

    def step(self) -> list[StepEvent]:
        """One forward for everyone who fits; a finished row leaves at once."""
        batch = self.batch = self.scheduler.next_batch()
        if not batch:
            return []
        self._note_start(batch)
        predictions = self.runner.predict(batch)
        events = []
        for sequence, prediction in zip(batch, predictions, strict=True):
            view = sequence.view()
            record = sequence.advance(view, prediction)
            self._finish_at_stop_string(sequence)
            output = self._retire(sequence) if sequence.finish_reason else None
            events.append(StepEvent(sequence, view, prediction, record, output))
        return events

    def cancel(self, id: str) -> Output | None:
        """Take a request out, now. What it had committed is returned; None if it is not here."""
        sequence = self.sequences.get(id)
        if sequence is None:
            return None
        sequence.finish_reason = FinishReason.CANCELLED
        return self._retire(sequence)

    @property
    def has_work(self) -> bool:
        return len(self.scheduler) > 0

    def text_so_far(self, sequence: Sequence) -> str:
        """The committed prefix as text, up to a stop string."""
        return self._before_stop_string(sequence)[0]

    def _note_start(self, batch: list[Sequence]) -> None:
        now = time.perf_counter()
        for sequence in batch:
            if sequence.started is None:
                sequence.started = now

    def _finish_at_stop_string(self, sequence: Sequence) -> None:
        if sequence.params.stop and self._before_stop_string(sequence)[1]:
            sequence.finish_reason = FinishReason.STOP

    def _before_stop_string(self, sequence: Sequence) -> tuple[str, bool]:
        """The committed prefix cut at the first stop string, and whether there was one."""
        text = self.detokenize(sequence.committed_prefix().tolist())
        found = [at for stop in sequence.params.stop if (at := text.find(stop)) >= 0]
        return (text[: min(found)], True) if found else (text, False)

    def _retire(self, sequence: Sequence) -> Output:
        self.scheduler.remove(sequence)
        del self.sequences[sequence.id]
        assert sequence.finish_reason is not None
        return Output(
            id=sequence.id,
            text=self.text_so_far(sequence),
            token_ids=sequence.committed_prefix().tolist(),
            canvas_token_ids=sequence.final_canvas().tolist(),
            finish_reason=sequence.finish_reason,
            usage=sequence.usage(),
            trace=sequence.trace,
        )
