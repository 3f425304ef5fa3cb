"""The whole path of a request, in one place: schedule, predict, decide, finish.

    submit(request) → Handle     the only way to hear of it
    scheduler.next_batch()       who runs now, within a position budget
    runner.predict(batch)        the only place that touches the device
    row.advance(…)               the policy commits tokens and edits the canvas
    handle.file(…)               what happened, and with the last step the output

Nothing here knows which policy a row follows or what it is batched with. What fails belongs to its
row alone: a policy that raises ends its own request, and a forward that raises is tried again with
half the rows, until the one that cannot be served is found. Where memory ran out, fewer positions
run together from then on.

Several threads may share an engine: whoever waits for a handle steps it, one at a time.
"""

import logging
import threading
import time
import traceback
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from itertools import chain
from typing import Protocol, TypeVar

import numpy as np

from rho_eos.base.errors import TokenizerError
from rho_eos.base.outputs import FinishReason, Output, StepRecord
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.canvas import (
    COMMIT_DRAWN,
    COMMIT_POSITION,
    COMMIT_PROBABILITY,
    COMMIT_STEP,
    Canvas,
)
from rho_eos.decoding.edits import EditError
from rho_eos.decoding.prediction import Prediction
from rho_eos.engine.errors import NotFiniteError, RequestFailedError
from rho_eos.engine.memory import give_back, is_out_of_memory
from rho_eos.engine.request import Detail, Detokenize, Handle, StepEvent
from rho_eos.engine.row import Row
from rho_eos.engine.scheduler import Scheduler
from rho_eos.text.ask import Request

logger = logging.getLogger(__name__)
T = TypeVar("T")


class Runner(Protocol):
    """What the engine needs of a model; tests put a scripted one here."""

    def predict(self, rows: Sequence[Row]) -> list[Prediction]: ...

    def release(self, row: Row) -> None:
        """The row has left, for whatever reason: what the device holds for it can go."""


Change = Callable[[], None]


class Engine:
    def __init__(
        self,
        runner: Runner,
        special: SpecialTokens,
        detokenize: Detokenize,
        max_rows: int = 32,
        max_positions: int = 16384,
        observe: Callable[[Row, StepRecord], None] = lambda *_: None,
    ) -> None:
        self.runner = runner
        self.special = special
        self.detokenize = detokenize
        self.scheduler = Scheduler(max_rows, max_positions)
        self.observe = observe  # called for every step of every row
        self._rows: dict[Handle, Row] = {}
        self._turn = threading.RLock()
        self._short_of_memory = False  # said once
        self.weights_version = 0  # how often a change was made
        self._changes: deque[tuple[Change, Future[int]]] = deque()

    def submit(self, request: Request, detail: Detail = Detail.OUTPUT) -> Handle:
        """Queue a request; it runs from the next step in which there is room for it."""
        handle = Handle(request, detail)
        self.admit(handle)
        return handle

    def admit(self, handle: Handle) -> None:
        """Queue a request whose handle somebody holds already."""
        with self._turn:
            try:
                row = Row(handle)
                row.plan()
            except Exception as error:
                self._refuse(handle, error)
                return
            self._rows[handle] = row
            self.scheduler.add(row)

    def run(self, requests: Sequence[Request]) -> list[Output]:
        """Decode all of these. After an error or an interrupt, at whatever moment, none stays."""
        handles = [Handle(request) for request in requests]
        try:
            for handle in handles:
                self.admit(handle)
            return self.finish(handles)
        finally:
            for handle in handles:
                self.cancel(handle)

    def step(self) -> None:
        """One forward for everyone who fits; a finished row leaves at once."""
        with self._turn:
            if not self.scheduler.running:
                self._make_changes()
            batch = self.scheduler.next_batch(admits=not self._changes)
            self._note_start(batch)
            for row, prediction in self._predict(batch):
                self._advance(row, prediction)

    def follow(self, handle: Handle) -> Generator[StepEvent, None, None]:
        """The events of a handle as they come; leaving early cancels its request."""
        try:
            while handle.events or not handle.done:
                if handle.events:
                    yield handle.events.popleft()
                else:
                    self._step_unless(lambda: handle.events or handle.done)
            handle.result()
        finally:
            self.cancel(handle)

    def finish(self, handles: Sequence[Handle]) -> list[Output]:
        """Decode until all of these are done. After an error or an interrupt none stays behind."""
        try:
            while not all(handle.done for handle in handles):
                self._step_unless(lambda: all(handle.done for handle in handles))
            return [handle.result() for handle in handles]
        finally:
            for handle in handles:
                self.cancel(handle)

    def cancel(self, handle: Handle) -> None:
        """Take a request out, now; its output is what it had committed. Nothing if it is done."""
        with self._turn:
            row = self._rows.get(handle)
            if row is not None:
                row.finish_reason = FinishReason.CANCELLED
                try:
                    handle.close(self._retire(row))
                except Exception as error:  # a cancelled row, too, has its errors for itself
                    self._fail(row, error)

    def between_steps(self, work: Callable[[], T]) -> T:
        """Do something else with the model, while no step runs."""
        with self._turn:
            return work()

    def change(self, change: Change) -> Future[int]:
        """Have the model changed as soon as nothing runs.

        Requests that run are finished first, and those that wait begin when it is done. So every
        output comes from one model, and says from which one.

        Returns:
            What will be the new `weights_version`, or the error that the change raised. Cancelled
            before that, it is not made.
        """
        promised: Future[int] = Future()
        with self._turn:
            self._changes.append((change, promised))
        return promised

    def changed(self, promised: Future[int]) -> int:
        """Decode until a change is made."""
        while not promised.done():
            self._step_unless(promised.done)
        return promised.result()

    def _make_changes(self) -> None:
        while self._changes:
            change, promised = self._changes.popleft()
            if not promised.set_running_or_notify_cancel():
                continue  # whoever asked has given it up
            try:
                change()
            except BaseException as error:
                promised.set_exception(error)
                if not isinstance(error, Exception):
                    raise
            else:
                self.weights_version += 1
                promised.set_result(self.weights_version)

    @property
    def has_work(self) -> bool:
        return len(self.scheduler) > 0 or bool(self._changes)

    def _step_unless(self, there: Callable[[], object]) -> None:
        """A step, unless another thread has meanwhile brought what is waited for."""
        with self._turn:
            if not there():
                self.step()

    def _predict(self, rows: Sequence[Row]) -> Iterator[tuple[Row, Prediction]]:
        """One forward; where it raises, the rows are tried again in halves, down to the culprit."""
        if not rows:
            return
        try:
            predictions = self.runner.predict(rows)
        except Exception as error:
            self._note_failure(rows, error)
        else:
            yield from zip(rows, predictions, strict=True)
            return
        # Only here, where the error is gone, is the memory free that its frames were holding.
        give_back()
        half = len(rows) // 2
        if half:
            yield from self._predict(rows[:half])
            yield from self._predict(rows[half:])

    def _note_failure(self, rows: Sequence[Row], error: Exception) -> None:
        """End a row that fails alone. What was too much for the memory is not tried again."""
        positions = sum(row.cost for row in rows)
        if is_out_of_memory(error):
            traceback.clear_frames(error.__traceback__)
            if len(rows) > 1:
                self._lower_budget(positions // 2)
        if len(rows) == 1:
            self._fail(rows[0], error, "the model")
        else:
            logger.warning("a forward of %d rows failed, trying halves: %r", len(rows), error)

    def _lower_budget(self, positions: int) -> None:
        if positions >= self.scheduler.max_positions:
            return
        self.scheduler.max_positions = max(1, positions)
        if not self._short_of_memory:
            self._short_of_memory = True
            logger.warning(
                "memory ran out in a step: from now on at most %d positions run together", positions
            )

    def _advance(self, row: Row, prediction: Prediction) -> None:
        try:
            before = row.canvas
            _check_finite(prediction)
            record = row.advance(prediction)
            self.observe(row, record)
            self._file(row, before, prediction, record)
        except BaseException as error:
            # Half a step may have been taken: whatever interrupted it, this row cannot go on.
            self._fail(row, error)
            if not isinstance(error, Exception):
                raise

    def _file(self, row: Row, before: Canvas, prediction: Prediction, record: StepRecord) -> None:
        """Tell the handle what it wants to hear."""
        handle = row.handle
        needs_text = handle.detail is not Detail.OUTPUT or bool(row.params.stop)
        text, stopped = self._text_so_far(row) if needs_text else ("", False)
        if stopped:
            row.finish_reason = FinishReason.STOP
        output = self._retire(row) if row.finish_reason else None
        delta = row.text.push(output.text if output else text, output is not None)
        wanted = {Detail.OUTPUT: False, Detail.TEXT: bool(delta), Detail.STEPS: True}
        if output is None and not wanted[handle.detail]:
            return
        prefix = output.token_ids if output else self._final_tokens(row, text)
        logprobs = output.logprobs if output else row.logprobs()
        draft, seen = before.cells.copy(), prediction.among(before.masked)
        draft[seen] = prediction.at(seen).token
        draft = draft[row.final.final_prefix :]
        handle.file(
            StepEvent(
                record=record,
                delta=delta,
                token_ids=prefix,
                draft_ids=draft[draft != self.special.mask].tolist(),  # a window sees not all
                positions_evaluated=row.spent.positions_evaluated,
                output=output,
                logprobs=None if logprobs is None else logprobs[: len(prefix)],
                detokenize=self.detokenize,
            )
        )

    def _fail(self, row: Row, error: BaseException, at_fault: str = "") -> None:
        if row.handle.done:
            return
        known = {NotFiniteError: "the model", TokenizerError: "the tokenizer"}
        what = at_fault or known.get(type(error), row.asking)
        failure = _failure(f"{what} failed", error, row)
        row.finish_reason = FinishReason.ERROR
        try:
            output = self._retire(row, failure.told)
        except Exception:  # what it had written cannot be told either
            output = Output(row.id, "", FinishReason.ERROR, error=failure.told)
        row.handle.close(output, failure)

    def _refuse(self, handle: Handle, error: Exception) -> None:
        """End a request whose policy could not even be created."""
        request = handle.request
        failure = _failure(f"policy {request.params.policy} failed", error)
        handle.close(Output(request.id, "", FinishReason.ERROR, error=failure.told), failure)

    def _note_start(self, batch: list[Row]) -> None:
        now = time.perf_counter()
        for row in batch:
            if row.spent.started is None:
                row.spent.started = now
                row.weights_version = self.weights_version

    def _text_so_far(self, row: Row) -> tuple[str, bool]:
        """The committed prefix as text, cut at the first stop string, and whether there was one."""
        text = self._decoded(row)
        found = [at for stop in row.params.stop if (at := text.find(stop)) >= 0]
        return (text[: min(found)], True) if found else (text, False)

    def _decoded(self, row: Row) -> str:
        """What is final: the committed prefix, or a template up to its first open gap."""
        texts, canvas = row.handle.request.texts, row.final
        if not texts:
            return self.detokenize(canvas.tokens)
        gaps = [self.detokenize(tokens) for tokens in canvas.gap_tokens]
        rest = texts[-1] if canvas.open_gap is None else ""
        return "".join(chain(*zip(texts[:-1], gaps, strict=False))) + rest

    def _final_tokens(self, row: Row, text: str) -> list[int]:
        """The committed prefix, less what may turn out to be the beginning of a stop string."""
        tokens = row.final.tokens
        if not row.params.stop or row.text.sent >= len(text):  # no template has a stop string
            return tokens
        return tokens[: self._tokens_of(row.text.sent + 1, tokens) - 1]

    def _tokens_of(self, length: int, tokens: list[int]) -> int:
        """How many tokens it takes to write so many characters of their text."""
        return bisect_left(
            range(len(tokens)), length, key=lambda count: len(self.detokenize(tokens[:count]))
        )

    def _retire(self, row: Row, error: str | None = None) -> Output:
        """The row leaves, here and nowhere else, whatever the reason."""
        if self._rows.pop(row.handle, None) is not None:
            self.scheduler.remove(row)
            self.runner.release(row)
        assert row.finish_reason is not None
        text, stopped = self._text_so_far(row)
        canvas = row.canvas
        tokens, logprobs = canvas.tokens, row.logprobs()
        if stopped:  # those that begin in the text
            tokens = tokens[: self._tokens_of(len(text), tokens)]
            logprobs = None if logprobs is None else logprobs[: len(tokens)]
        return Output(
            id=row.id,
            text=text,
            finish_reason=row.finish_reason,
            token_ids=tokens,
            token_positions=canvas.returned[: len(tokens)].tolist(),
            canvas_token_ids=canvas.filled.tolist(),
            commit_steps=canvas.column(COMMIT_STEP).tolist(),
            commit_positions=canvas.column(COMMIT_POSITION).tolist(),
            commit_probabilities=canvas.column(COMMIT_PROBABILITY).tolist(),
            commit_drawn=canvas.column(COMMIT_DRAWN).tolist(),
            usage=row.usage(),
            trace=row.trace,
            logprobs=logprobs,
            error=error,
            weights_version=row.weights_version,
            gaps=[self.detokenize(tokens) for tokens in canvas.gap_tokens]
            if row.handle.request.texts
            else [],
        )


def _check_finite(prediction: Prediction) -> None:
    """Raise where logits are no numbers: weights hold NaN, or products overflow their precision."""
    bad = np.count_nonzero(~np.isfinite(prediction.confidence + prediction.eos_probability))
    if bad:
        raise NotFiniteError(
            f"its logits are NaN or infinite, or forbid every token, at {bad} of "
            f"{len(prediction.confidence)} positions"
        )


def _failure(what: str, error: BaseException, row: Row | None = None) -> RequestFailedError:
    """The error of a request that failed. Its words name only the kind of the cause, since clients
    read them; code in this process finds the cause itself attached."""
    said = isinstance(error, EditError | NotFiniteError | TokenizerError)
    reason = str(error) if said else type(error).__name__
    if is_out_of_memory(error) and row is not None:
        reason = f"there is not enough memory for the {row.cost} positions of this request"
    failure = RequestFailedError(f"{what}: {reason}")
    failure.__cause__ = error
    return failure
