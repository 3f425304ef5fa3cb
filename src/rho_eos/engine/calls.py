"""What a client of the engine's thread holds: its call, the news of it, and what may go wrong."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType
from typing import Self

from rho_eos.outputs import Output, StepRecord


class EngineError(RuntimeError):
    """A request could not be served, through no fault of its own."""


class QueueFullError(EngineError):
    """Too many requests are in flight already; later there is room again."""


class UnavailableError(EngineError):
    """The worker is gone, or the engine takes no new requests any more."""


class BatchFailedError(EngineError):
    """The forward that this request took part in raised."""


class DeadlineExceededError(EngineError):
    """The request was not finished in the time it had."""


class Detail(Enum):
    """How much a client wants to hear of a request while it runs."""

    OUTPUT = auto()  # the finished output only
    TEXT = auto()  # also the committed prefix, whenever it has grown
    STEPS = auto()  # also every denoising step


@dataclass(frozen=True, slots=True)
class Update:
    """News of one sequence. `text` is the committed prefix, which only ever grows."""

    index: int  # which sequence of the call
    text: str
    record: StepRecord | None  # with Detail.STEPS
    tokens: tuple[str, ...]  # the text of each token that the record commits
    positions_evaluated: int
    output: Output | None  # with the last update
    seconds_waiting: float  # from submission to the first forward
    seconds_to_first_token: float | None  # from submission until the prefix was not empty


class Call:
    """One or more sequences submitted together; iterate for their updates, leave to cancel them.

    >>> with engine.submit([(prompt, params)], Detail.TEXT) as call:
    ...     async for update in call: ...
    """

    def __init__(
        self, withdraw: Callable[["Call"], None], detail: Detail, deadline: float | None
    ) -> None:
        self.detail = detail
        self.unfinished = 0
        self._withdraw = withdraw
        self._deadline = deadline  # of the event loop's clock
        self._updates: asyncio.Queue[Update | EngineError] = asyncio.Queue()

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

    async def __anext__(self) -> Update:
        if not self.unfinished:
            raise StopAsyncIteration
        try:
            async with asyncio.timeout_at(self._deadline):
                update = await self._updates.get()
        except TimeoutError:
            raise DeadlineExceededError(
                "the request was not finished before its deadline"
            ) from None
        if isinstance(update, EngineError):
            raise update
        self.unfinished -= update.output is not None
        return update

    def push(self, update: Update | EngineError) -> None:
        self._updates.put_nowait(update)
