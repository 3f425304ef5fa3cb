"""Server-sent events: the text as it becomes final, or every denoising step for who wants to see.

Committed tokens never change, so a character is sent once and never taken back.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rho_eos.engine.calls import EngineError, Update
from rho_eos.outputs import Output, StepRecord
from rho_eos.server.errors import as_api_error
from rho_eos.server.responses import Shape, chunk, usage, usage_chunk
from rho_eos.server.service import Generation
from rho_eos.streaming import TextDelta

T = TypeVar("T")
Event = dict[str, Any]


async def text_events(
    shape: Shape, generation: Generation, include_usage: bool
) -> AsyncIterator[Event]:
    """OpenAI's chunks: deltas of the committed prefix of each choice."""
    blank = {"usage": None} if include_usage else {}
    deltas = [TextDelta(params.stop) for _, params in generation.requests]
    unopened = set(range(len(deltas))) if shape.opening else set()
    async for update in generation:
        index, output = update.index, update.output
        if index in unopened:
            unopened.remove(index)
            yield chunk(shape, generation, index, shape.opening) | blank
        text = deltas[index].push(update.text, final=output is not None)
        if text:
            yield chunk(shape, generation, index, shape.delta(text)) | blank
        if output is not None:
            reason = output.finish_reason.value
            yield chunk(shape, generation, index, shape.delta(""), reason) | blank
    if include_usage:
        yield usage_chunk(shape, generation)


async def denoise_events(generation: Generation, ends: tuple[int, ...]) -> AsyncIterator[Event]:
    """One event per step and choice: which positions were filled, L, ρ, and what it led to."""
    async for update in generation:
        if update.record is not None:
            if update.record.step == 0:
                yield _start(generation, update.index)
            yield _step(generation, update, update.record, ends)
        if update.output is not None:
            yield _done(generation, update.index, update.output)


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
                        begun = True
                        await self._begin(send)
                    await _send_part(send, _encode(event))
            last = b"data: [DONE]\n\n"
        except EngineError as error:
            answer = as_api_error(error)
            if not begun:
                await answer.response()(scope, receive, send)
                return
            last = _encode(answer.body)
        await _send_part(send, last, more=False)

    async def _begin(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)


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
    return f"data: {json.dumps(event, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def _start(generation: Generation, index: int) -> Event:
    prompt, params = generation.requests[index]
    return {
        "object": "rho_eos.start",
        "id": generation.id,
        "model": generation.model,
        "index": index,
        "policy": params.policy,
        "region": list(params.region),
        "horizon": params.horizon,
        "max_new_tokens": params.max_new_tokens,
        "prompt_tokens": len(prompt),
        "length": params.first_length,
    }


def _step(
    generation: Generation, update: Update, record: StepRecord, ends: tuple[int, ...]
) -> Event:
    return {
        "object": "rho_eos.step",
        "id": generation.id,
        "index": update.index,
        "step": record.step,
        "length": record.length,
        "masks": record.masks,
        "rho": record.rho,
        "signal": record.signal,
        "action": record.action,
        "change": record.change,
        "at": record.at,
        "inserted": record.inserted,
        "committed": [
            [position, text, confidence, token in ends]
            for (position, token, confidence), text in zip(
                record.committed, update.tokens, strict=True
            )
        ],
        "positions_evaluated": update.positions_evaluated,
    }


def _done(generation: Generation, index: int, output: Output) -> Event:
    return {
        "object": "rho_eos.done",
        "id": generation.id,
        "index": index,
        "text": output.text,
        "finish_reason": output.finish_reason.value,
        "usage": usage(output.usage.prompt_tokens, [output]),
    }
