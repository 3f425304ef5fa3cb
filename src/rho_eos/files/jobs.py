"""Jobs that can be interrupted: items in, one line of a results file for each of them, once.

    items  →  those the file does not hold yet  →  answers, as they finish  →  a line each

`generate --input`, `batch` and evaluations are such jobs. They differ in what an item is, in who
answers it, and in what its line says; `run` is the same for all. Whatever ends a job, the same
command goes on with what is missing.
"""

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from rho_eos.base.outputs import FinishReason, Output
from rho_eos.engine.engine import Engine
from rho_eos.engine.errors import RequestFailedError
from rho_eos.engine.request import Handle
from rho_eos.llm import LLM
from rho_eos.text.ask import Ask, Request
from rho_eos.text.preparation import Preparer


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing to answer. Its line in the results goes by its id."""

    id: str
    ask: Mapping[str, Any]  # what an executor prepares, or whatever else answers it
    where: str = ""  # its place in the input, for complaints


I = TypeVar("I", bound=Item)  # noqa: E741
#: Ids, each with its answer, in any order. Closing it cancels what is in flight.
Answers = Generator[tuple[str, Any], None, None]


def run(
    items: Iterable[I],
    have: Collection[str],
    answers: Callable[[Iterator[I]], Answers],
    finish: Callable[[I, Any], None],
    threads: int = 0,
) -> None:
    """Answer every item whose id is not in `have`, and finish each with its answer, once.

    An exception ends the run, and what is in flight is cancelled.

    Args:
        items: What to answer, read as there is room for more.
        have: The ids of what is there already.
        answers: Answers items; of an answer that comes twice the second is dropped.
        finish: Writes down what came of an item.
        threads: How many threads call `finish`. 0: it is called here, and answering waits for it.
    """
    had = frozenset(have)
    begun: dict[str, I] = {}
    working: deque[Future[None]] = deque()

    def fresh() -> Iterator[I]:
        for item in items:
            if item.id not in had:
                begun[item.id] = item
                yield item

    with ThreadPoolExecutor(max(1, threads), "finish") as pool:
        try:
            with closing(answers(fresh())) as answered:
                for id, answer in answered:
                    item = begun.pop(id, None)
                    if item is not None and threads:
                        working.append(pool.submit(finish, item, answer))
                    elif item is not None:
                        finish(item, answer)
                    while working and working[0].done():
                        working.popleft().result()
            for future in working:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if begun:
        raise RuntimeError(f"{len(begun)} items were never answered")


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

    def request(self, item: Item) -> Request:
        """The one place where an item of a job becomes a request."""
        [request] = self.preparer.prepare(Ask(id=item.id, **item.ask))
        return request

    def answers(self, items: Iterator[Item]) -> Answers:
        """The output of each item, or the exception that says why there is none."""
        refused: list[tuple[str, Exception]] = []

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
                failed = output.finish_reason is FinishReason.ERROR
                reason = f"request {output.id}: {output.error}"
                yield output.id, RequestFailedError(reason) if failed else output
                while refused:
                    yield refused.pop()
        yield from refused


def decode_all(engine: Engine, requests: Iterator[Request]) -> Generator[Output, None, None]:
    """Keep the engine fed; outputs come as they finish, those that failed among them.

    Leaving early cancels what is in flight.
    """
    backlog = 2 * engine.scheduler.max_rows
    running: list[Handle] = []
    try:
        while True:
            room = backlog - len(running)
            for request in islice(requests, room):
                running.append(Handle(request))  # known here before it is there, to be cancelled
                engine.admit(running[-1])
            if not running:
                return
            engine.step()
            outputs = [handle.output for handle in running if handle.output is not None]
            running = [handle for handle in running if not handle.done]
            yield from outputs
    finally:
        for handle in running:
            engine.cancel(handle)
