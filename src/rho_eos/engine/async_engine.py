"""The engine in a thread of its own, asyncio on this side of it.

    submit  →  commands (thread-safe queue)  →  worker: obey commands, engine.step(), report
    updates ←  asyncio queues, one per call  ←  loop.call_soon_threadsafe

Two kinds of failure are planned for. A step that raises fails the requests of its batch, and the
worker goes on with the others. A worker that ends for any other reason fails everything in flight
and everything that comes later. In both cases every waiting client is told; nobody hangs.
"""

import asyncio
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from rho_eos.config import DecodeParams
from rho_eos.engine.calls import (
    BatchFailedError,
    Call,
    Detail,
    EngineError,
    QueueFullError,
    UnavailableError,
    Update,
)
from rho_eos.engine.engine import Engine, StepEvent

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Ticket:
    """One sequence on its way through the worker."""

    id: str
    call: Call
    index: int
    prompt: list[int]
    params: DecodeParams
    submitted: float = field(default_factory=time.perf_counter)
    first_token: float | None = None
    sent: int = 0  # length of the prefix that was last reported


class AsyncEngine:
    """Start it in a running event loop; all public methods belong to that loop's thread."""

    def __init__(
        self,
        engine: Engine,
        max_waiting: int = 256,
        observe: Callable[[StepEvent], None] | None = None,
    ) -> None:
        self._engine = engine
        self._capacity = engine.scheduler.max_rows + max_waiting
        self._observe = observe  # called in the worker's thread
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._ids = itertools.count()
        self._open: dict[str, _Ticket] = {}  # without an output yet; the loop's own
        self._tickets: dict[str, _Ticket] = {}  # the same as the worker knows them
        self._accepting = False
        self._thread: threading.Thread | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    # ── the loop's side ──────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._accepting = True
        self._thread = threading.Thread(target=self._work, name="rho-eos-engine", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def ready(self) -> bool:
        """Whether a request submitted now would run."""
        return self._accepting and self.alive

    @property
    def running(self) -> int:
        return len(self._engine.scheduler.running)

    @property
    def waiting(self) -> int:
        return max(0, len(self._open) - self.running)

    def submit(
        self,
        requests: Sequence[tuple[list[int], DecodeParams]],
        detail: Detail = Detail.OUTPUT,
        seconds: float | None = None,
    ) -> Call:
        """Queue sequences together: all of them, or none if there is no room for all."""
        if not self.alive:
            raise UnavailableError("the engine's worker is not running")
        if not self._accepting:
            raise UnavailableError("the server is shutting down and takes no new requests")
        if len(self._open) + len(requests) > self._capacity:
            raise QueueFullError(f"{len(self._open)} requests are in flight; the queue is full")
        call = Call(self.withdraw, detail, None if seconds is None else self._loop.time() + seconds)
        for index, (prompt, params) in enumerate(requests):
            ticket = _Ticket(str(next(self._ids)), call, index, prompt, params)
            call.unfinished += 1
            self._open[ticket.id] = ticket
            self._commands.put(partial(self._admit, ticket))
        self._idle.clear()
        return call

    def withdraw(self, call: Call) -> None:
        """Cancel what is left of a call; it leaves the engine before the next forward."""
        for id in [id for id, ticket in self._open.items() if ticket.call is call]:
            self._close(id)
            self._commands.put(partial(self._cancel, id))

    async def drain(self, seconds: float) -> None:
        """Take nothing new; let what is in flight finish; after `seconds`, fail what is left."""
        self._accepting = False
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except TimeoutError:
            logger.warning("%d requests were cut off by the shutdown", len(self._open))
            self._fail_everything("the server shut down before the request was finished")

    async def stop(self, seconds: float = 10.0) -> None:
        """End the worker after the step it is in."""
        self._accepting = False
        self._commands.put(None)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, seconds)
        self._fail_everything("the engine was stopped")

    def _deliver(self, news: list[tuple[_Ticket, Update | EngineError]]) -> None:
        for ticket, update in news:
            if ticket.id not in self._open:
                continue  # withdrawn meanwhile
            ticket.call.push(update)
            if isinstance(update, EngineError) or update.output is not None:
                self._close(ticket.id)

    def _close(self, id: str) -> None:
        del self._open[id]
        if not self._open:
            self._idle.set()

    def _fail_everything(self, reason: str) -> None:
        tickets = list(self._open.values())
        self._deliver([(ticket, UnavailableError(reason)) for ticket in tickets])
        for ticket in tickets:
            self._commands.put(partial(self._cancel, ticket.id))

    # ── the worker's side ────────────────────────────────────────────────────────────────────

    def _work(self) -> None:
        try:
            while self._obey_commands():
                self._step()
        except BaseException:  # whatever ended the worker, nobody may go on waiting for it
            logger.critical("the engine's worker died", exc_info=True)
            self._tell_loop(self._fail_everything, "the engine's worker died")

    def _obey_commands(self) -> bool:
        """Admit and cancel; wait only if there is nothing to decode. False: it is time to end."""
        while True:
            try:
                command = self._commands.get(block=not self._engine.has_work)
            except queue.Empty:
                return True
            if command is None:
                return False
            command()

    def _admit(self, ticket: _Ticket) -> None:
        self._tickets[ticket.id] = ticket
        self._engine.add(ticket.id, ticket.prompt, ticket.params)

    def _cancel(self, id: str) -> None:
        self._tickets.pop(id, None)
        self._engine.cancel(id)

    def _step(self) -> None:
        news: list[tuple[_Ticket, Update | EngineError]] = []
        try:
            for event in self._engine.step():
                if self._observe is not None:
                    self._observe(event)
                ticket = self._tickets[event.sequence.id]
                if self._is_news(ticket, event):
                    news.append((ticket, self._update(ticket, event)))
        except Exception as error:
            news = self._fail_batch(error)
        for ticket, update in news:
            if isinstance(update, Update) and update.output is not None:
                del self._tickets[ticket.id]
        if news:
            self._tell_loop(self._deliver, news)

    def _fail_batch(self, error: Exception) -> list[tuple[_Ticket, Update | EngineError]]:
        """Take the requests of the failed step out, so that the others can go on."""
        ids = [sequence.id for sequence in self._engine.batch]
        failed = [self._tickets[id] for id in ids if id in self._tickets]
        if not failed:
            raise error  # it is nobody's: going on would meet it again, for ever
        logger.error("a step failed, and with it %d requests", len(failed), exc_info=error)
        for ticket in failed:
            self._cancel(ticket.id)
        failure = BatchFailedError(f"the model failed with {type(error).__name__}")
        return [(ticket, failure) for ticket in failed]

    def _is_news(self, ticket: _Ticket, event: StepEvent) -> bool:
        """Whether the client of this sequence wants to hear of the step."""
        prefix = len(event.sequence.committed_prefix())
        if prefix and ticket.first_token is None:
            ticket.first_token = time.perf_counter()
        grown, ticket.sent = prefix > ticket.sent, prefix
        detail = ticket.call.detail
        wanted = detail is Detail.STEPS or (detail is Detail.TEXT and grown)
        return wanted or event.output is not None

    def _update(self, ticket: _Ticket, event: StepEvent) -> Update:
        sequence, output = event.sequence, event.output
        steps = ticket.call.detail is Detail.STEPS
        first = ticket.first_token
        return Update(
            index=ticket.index,
            text=output.text if output else self._engine.text_so_far(sequence),
            record=event.record if steps else None,
            tokens=tuple(
                self._engine.detokenize([token])
                for _, token, _ in (event.record.committed if steps else ())
            ),
            positions_evaluated=sequence.positions_evaluated,
            output=output,
            seconds_waiting=(sequence.started or ticket.submitted) - ticket.submitted,
            seconds_to_first_token=None if first is None else first - ticket.submitted,
        )

    def _tell_loop(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed: nobody is left to tell
            logger.debug("the event loop ended before the engine")
