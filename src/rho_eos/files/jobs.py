"""Jobs that can be interrupted: items in, one line of a results file for each of them, once.

    items  →  those the file does not hold yet  →  answers, as they finish  →  a line each

`generate --input`, `batch` and evaluations are such jobs. They differ in what an item is, in who
answers it, and in what its line says; `run` is the same for all. Whatever ends a job, the same
command goes on with what is missing.
"""

import threading
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeVar

from rho_eos.base.outputs import FinishReason, Output
from rho_eos.engine.engine import Engine
from rho_eos.engine.errors import RequestFailedError
from rho_eos.engine.preparation import Preparer
from rho_eos.engine.request import Handle, Request
from rho_eos.llm import LLM


class Item(Protocol):
    """One thing to answer. Its line in the results goes by its id."""

    @property
    def id(self) -> str: ...


class Asked(Item, Protocol):
    """An item that is one request: `ask` holds the arguments of `Preparer.prepare`."""

    @property
    def ask(self) -> Mapping[str, Any]: ...


I = TypeVar("I", bound=Item)  # noqa: E741
A = TypeVar("A")
M = TypeVar("M")
#: Takes items and gives their ids, each with its answer, in any order, as they finish.
Answers = Callable[[Iterator[I]], Generator[tuple[str, A], None, None]]


def run(
    items: Iterable[I],
    have: Collection[str],
    answers: Answers[I, A],
    make: Callable[[I, A], M],
    keep: Callable[[I, M], None],
    threads: int = 0,
) -> None:
    """Answer every item whose id is not in `have`, and keep what is made of each answer, once.

    An exception ends the run, and what is in flight is cancelled.

    Args:
        items: What to answer, read as there is room for more.
        have: The ids of what is there already.
        answers: Who answers; an answer that comes a second time is dropped.
        make: Makes of an answer what is kept.
        keep: Writes it down; called for one at a time.
        threads: How many threads call `make`, so that answering does not wait for it. 0: none.
    """
    had = frozenset(have)
    begun: dict[str, I] = {}
    lock = threading.Lock()

    def fresh() -> Iterator[I]:
        for item in items:
            if item.id not in had:
                begun[item.id] = item
                yield item

    def finish(item: I, answer: A) -> None:
        made = make(item, answer)
        with lock:
            keep(item, made)

    working: list[Future[None]] = []
    with ThreadPoolExecutor(max(1, threads), "finish") as pool:
        try:
            with closing(answers(fresh())) as answered:
                for id, answer in answered:
                    item = begun.pop(id, None)
                    if item is None:
                        continue
                    if not threads:
                        finish(item, answer)
                        continue
                    working = [*_unfinished(working), pool.submit(finish, item, answer)]
            for future in working:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if begun:
        raise RuntimeError(f"{len(begun)} items were never answered")


def _unfinished(working: list[Future[None]]) -> list[Future[None]]:
    """Those that still run; raises what one that failed has raised."""
    done = [future for future in working if future.done()]
    for future in done:
        future.result()
    return [future for future in working if future not in done]


@dataclass(frozen=True, slots=True)
class Executor:
    """Who decodes: `decode` takes requests and gives an output for each, as they finish.

    The engine of this process is one, a pool of engines on a cluster is another.
    """

    preparer: Preparer
    decode: Callable[[Iterator[Request]], Generator[Output, None, None]]

    @classmethod
    def of(cls, llm: LLM) -> "Executor":
        return cls(llm.preparer, partial(decode_all, llm.engine))

    def request(self, item: Asked) -> Request:
        """The one place where an item of a job becomes a request."""
        return self.preparer.prepare(id=item.id, **item.ask)

    def answers(
        self, items: Iterator[Asked]
    ) -> Generator[tuple[str, Output | Exception], None, None]:
        """The output of each item, or what is wrong with it. Nothing ends the others."""
        refused: list[tuple[str, Output | Exception]] = []

        def requests() -> Iterator[Request]:
            for item in items:
                try:
                    request = self.request(item)
                except Exception as error:
                    refused.append((item.id, error))
                else:
                    yield request

        with closing(self.decode(requests())) as outputs:
            for output in outputs:
                while refused:
                    yield refused.pop(0)
                failed = output.finish_reason is FinishReason.ERROR
                reason = f"request {output.id}: {output.error}"
                yield output.id, RequestFailedError(reason) if failed else output
        yield from refused


def decode_all(engine: Engine, requests: Iterator[Request]) -> Generator[Output, None, None]:
    """Keep the engine fed; outputs come as they finish, those that failed among them.

    Leaving early cancels what is in flight.
    """
    backlog = 2 * engine.scheduler.max_rows
    running: list[Handle] = []
    try:
        while True:
            running += [
                engine.submit(request) for request in islice(requests, backlog - len(running))
            ]
            if not running:
                return
            engine.step()
            done = [handle for handle in running if handle.done]
            running = [handle for handle in running if not handle.done]
            for handle in done:
                assert handle.output is not None
                yield handle.output
    finally:
        for handle in running:
            engine.cancel(handle)
