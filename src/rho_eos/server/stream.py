"""How events are sent to a client, and what happens when the client leaves."""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rho_eos.engine.errors import EngineError
from rho_eos.engine.generation import Generation
from rho_eos.server.errors import as_api_error
from rho_eos.server.responses import Event

T = TypeVar("T")
_LAST_SECONDS = 1.0  # for sending the last event of a stream that failed


class EventStream(Response):
    """Sends events as they come, and cancels the generation when the client hangs up.

    A failure before the first event is still an ordinary error with its own status; a later one
    is the last event.
    """

    media_type = "text/event-stream"

    def __init__(self, generation: Generation, events: AsyncIterator[Event]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self.generation = generation
        self.events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await unless_disconnected(receive, self._send_all(scope, receive, send))

    async def _send_all(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False
        try:
            with self.generation:
                async for event in self.events:
                    if not begun:
                        head = {"status": 200, "headers": self.raw_headers}
                        begin = send({"type": "http.response.start", **head})
                        await self.generation.in_time(begin)
                        begun = True
                    await self.generation.in_time(_send_part(send, _encode(event)))
            await self.generation.in_time(_send_part(send, b"data: [DONE]\n\n", more=False))
        except EngineError as error:
            answer = as_api_error(error)
            # A client that reads nothing cannot be told; its connection just ends.
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_SECONDS):
                    if begun:
                        await _send_part(send, _encode(answer.body), more=False)
                    else:
                        await answer.response()(scope, receive, send)


async def unless_disconnected(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`; None, with `work` cancelled, if the client left before."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait((working,))


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_part(send: Send, body: bytes, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


def _encode(event: Event) -> bytes:
    text = json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return f"data: {text}\n\n".encode()
