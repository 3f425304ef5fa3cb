"""What a client of the engine's thread holds: one or more requests that were submitted together."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeVar

from rho_eos.base.outputs import Output
from rho_eos.engine.errors import DeadlineExceededError, EngineError
from rho_eos.engine.request import StepEvent
from rho_eos.text.ask import Request

T = TypeVar("T")
#: Which request of the generation, and what happened to it.
News = tuple[int, StepEvent]
Ended = Callable[["Generation", BaseException | None], None]


@dataclass(eq=False)
class Generation:
    """Iterate for (index, event) of its requests. Leaving it cancels what is not finished.

    >>> with engine.submit(Generation([request]), Detail.TEXT) as generation:
    ...     async for index, event in generation: ...

    Args:
        requests: What is to be decoded; the index of an event is the place of its request here.
        id: The name under which a client knows all of them together.
        model: The name under which a client knows the model.
        n: How many of the requests are samples of the same prompt.
        note: What the client should know of its prompt.
        ended: Called once it is left, with the error that ended it, if there was one.
    """

    requests: Sequence[Request]
    id: str = ""
    model: str = ""
    n: int = 1
    note: str | None = None
    ended: Ended = lambda *_: None
    created: int = field(default_factory=lambda: int(time.time()))
    started: float = field(default_factory=time.perf_counter)
    outputs: dict[int, Output] = field(default_factory=dict)  # by index
    deadline: float | None = None  # of the event loop's clock; set where it is submitted
    withdraw: Callable[["Generation"], None] = lambda _: None  # likewise
    _news: asyncio.Queue[News | EngineError] = field(default_factory=asyncio.Queue)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.withdraw(self)
        self.ended(self, error)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> News:
        if len(self.outputs) == len(self.requests):
            raise StopAsyncIteration
        late = "the request was not finished before its deadline"
        news = await self.in_time(self._news.get(), late)
        if isinstance(news, EngineError):
            raise news
        index, event = news
        if event.output is not None:
            self.outputs[index] = event.output
        return news

    async def finish(self) -> list[Output]:
        """Wait for all outputs, in the order of the requests."""
        async for _ in self:
            pass
        return self.ordered()

    def ordered(self) -> list[Output]:
        return [self.outputs[index] for index in range(len(self.requests))]

    async def in_time(
        self, work: Awaitable[T], late: str = "the answer was not read before the deadline"
    ) -> T:
        """Wait for what must not take longer than the whole may."""
        try:
            async with asyncio.timeout_at(self.deadline):
                return await work
        except TimeoutError:
            raise DeadlineExceededError(late) from None

    def push(self, news: News | EngineError) -> None:
        self._news.put_nowait(news)
