"""The engine in a thread of its own, asyncio on this side of it.

    submit  →  commands (thread-safe queue)  →  worker: obey commands, engine.step()
    events  ←  asyncio queues, one per generation  ←  handles with news, loop.call_soon_threadsafe

A request that fails is told so by its handle, and the worker goes on with the others. A worker that
ends for any other reason fails everything in flight and everything that comes later. In both cases
every waiting client is told; nobody hangs.
"""

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from rho_eos.engine.engine import Engine
from rho_eos.engine.errors import EngineError, QueueFullError, UnavailableError
from rho_eos.engine.generation import Generation
from rho_eos.engine.request import Detail, Handle, StepEvent

logger = logging.getLogger(__name__)
T = TypeVar("T")


class AsyncEngine:
    """Start it in a running event loop; all public methods belong to that loop's thread."""

    def __init__(self, engine: Engine, max_waiting: int = 256) -> None:
        self._engine = engine
        self._capacity = engine.scheduler.max_rows + max_waiting
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._open: dict[Handle, tuple[Generation, int]] = {}  # not done yet; the loop's own
        self._news: list[Handle] = []  # with which something was filed in this step; the worker's
        self.when_dead: Callable[[], None] = lambda: None  # called in the loop
        self._asides: set[Future[Any]] = set()  # what is to be done between steps
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
    def in_flight(self) -> int:
        return len(self._open)

    @property
    def waiting(self) -> int:
        return max(0, len(self._open) - self.running)

    def submit(
        self,
        generation: Generation,
        detail: Detail = Detail.OUTPUT,
        seconds: float | None = None,
    ) -> Generation:
        """Queue its requests together: all of them, or none if there is no room for all."""
        if not self.alive:
            raise UnavailableError("the engine's worker is not running")
        if not self._accepting:
            raise UnavailableError("the server is shutting down and takes no new requests")
        if len(self._open) + len(generation.requests) > self._capacity:
            raise QueueFullError(f"{len(self._open)} requests are in flight; the queue is full")
        generation.deadline = None if seconds is None else self._loop.time() + seconds
        generation.withdraw = self.withdraw
        for index, request in enumerate(generation.requests):
            handle = Handle(request, detail, notify=self._news.append)
            self._open[handle] = generation, index
            self._commands.put(partial(self._engine.admit, handle))
        self._idle.clear()
        return generation

    def between_steps(self, work: Callable[[], T]) -> "Future[T]":
        """Have the worker do something else with the model between two steps; from any thread."""
        if not self.alive:
            raise UnavailableError("the engine's worker is not running")
        future: Future[T] = Future()
        self._asides.add(future)

        def run() -> None:
            with suppress(InvalidStateError):  # it was given up meanwhile
                try:
                    future.set_result(self._engine.between_steps(work))
                except Exception as error:
                    future.set_exception(error)

        future.add_done_callback(self._asides.discard)
        self._commands.put(run)
        return future

    def withdraw(self, generation: Generation) -> None:
        """Cancel what is left of it; that leaves the engine before the next forward."""
        for handle in [each for each, (owner, _) in self._open.items() if owner is generation]:
            self._close(handle)
            self._commands.put(partial(self._engine.cancel, handle))

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

    def _deliver(self, news: list[tuple[Handle, list[StepEvent], EngineError | None]]) -> None:
        for handle, events, error in news:
            if handle not in self._open:
                continue  # withdrawn meanwhile
            generation, index = self._open[handle]
            for event in events:
                generation.push((index, event))
            if error is not None:
                generation.push(error)
            if error is not None or any(event.output for event in events):
                self._close(handle)

    def _close(self, handle: Handle) -> None:
        del self._open[handle]
        if not self._open:
            self._idle.set()

    def _fail_everything(self, reason: str) -> None:
        handles = list(self._open)
        self._deliver([(handle, [], UnavailableError(reason)) for handle in handles])
        for handle in handles:
            self._commands.put(partial(self._engine.cancel, handle))
        for aside in list(self._asides):
            with suppress(InvalidStateError):  # it has just been done
                aside.set_exception(UnavailableError(reason))

    def _die(self) -> None:
        self._fail_everything("the engine's worker died")
        self.when_dead()

    # ── the worker's side ────────────────────────────────────────────────────────────────────

    def _work(self) -> None:
        try:
            while self._obey_commands():
                self._engine.step()
                self._report()
        except BaseException:  # whatever ended the worker, nobody may go on waiting for it
            logger.critical("the engine's worker died", exc_info=True)
            self._tell_loop(self._die)

    def _obey_commands(self) -> bool:
        """Admit and cancel; wait only if there is nothing to decode or to tell. False: the end."""
        while True:
            try:
                command = self._commands.get(block=not self._engine.has_work and not self._news)
            except queue.Empty:
                return True
            if command is None:
                return False
            command()

    def _report(self) -> None:
        """Hand what the step filed to the loop."""
        news = []
        for handle in self._news:
            if handle.error is not None:  # a client is not told why; who runs the server is
                cause = handle.error.__cause__
                logger.error("request %s: %s", handle.request.id, handle.error, exc_info=cause)
            news.append((handle, list(handle.events), handle.error))
            handle.events.clear()
        self._news.clear()
        if news:
            self._tell_loop(self._deliver, news)

    def _tell_loop(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed: nobody is left to tell
            logger.debug("the event loop ended before the engine")
