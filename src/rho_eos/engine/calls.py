"""What a client of the engine's thread holds: one or more requests submitted together."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rho_eos.engine.errors import DeadlineExceededError, EngineError
from rho_eos.engine.request import StepEvent

#: Which request of the call, and what happened to it.
News = tuple[int, StepEvent]


class Call:
    """Iterate for (index, event) of its requests, leave to cancel them.

    >>> with engine.submit([request], Detail.TEXT) as call:
    ...     async for index, event in call: ...
    """

    def __init__(
        self, size: int, withdraw: Callable[["Call"], None], deadline: float | None
    ) -> None:
        self.unfinished = size
        self._withdraw = withdraw
        self.deadline = deadline  # of the event loop's clock
        self._news: asyncio.Queue[News | EngineError] = asyncio.Queue()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._withdraw(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> News:
        if not self.unfinished:
            raise StopAsyncIteration
        try:
            async with asyncio.timeout_at(self.deadline):
                news = await self._news.get()
        except TimeoutError:
            raise DeadlineExceededError(
                "the request was not finished before its deadline"
            ) from None
        if isinstance(news, EngineError):
            raise news
        self.unfinished -= news[1].output is not None
        return news

    def push(self, news: News | EngineError) -> None:
        self._news.put_nowait(news)
