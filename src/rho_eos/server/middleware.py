"""What happens around every request: an id, a line in the log, limits on the body, safe headers."""

import asyncio
import logging
import re
import time
import uuid
from contextvars import ContextVar

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rho_eos.server.errors import ApiError

logger = logging.getLogger(__name__)
request_id: ContextVar[str] = ContextVar("request_id", default="-")

_GOOD_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)
_SAFE_HEADERS = {
    # blob: are pictures the page makes itself, of its charts.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
#: A body that is too large is read on (and thrown away) up to so many times the limit, because a
#: client that is still sending would see a broken connection instead of the answer.
_PATIENCE = 16


class RequestLog:
    """Names every request (after the client's X-Request-ID, if that is sane) and logs its end."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        offered = Headers(scope=scope).get("x-request-id", "")
        name = offered if _GOOD_ID.fullmatch(offered) else f"req-{uuid.uuid4().hex}"
        request_id.set(name)
        started, status = time.perf_counter(), 0

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = name
                for header, value in _SAFE_HEADERS.items():
                    headers[header] = value
            await send(message)

        try:
            await self.app(scope, receive, send_named)
        finally:
            # The path is a client's word too: percent-encoded, it cannot forge a line of the log.
            path = scope.get("raw_path", b"").decode("ascii", "backslashreplace")[:200]
            took = time.perf_counter() - started
            logger.info("%s %s %s %.3fs", scope["method"], path, status or "disconnected", took)


class BodyLimit:
    """Reads the whole body before the app runs, within a size and a time."""

    def __init__(self, app: ASGIApp, max_bytes: int, seconds: float) -> None:
        self.app = app
        self.max_bytes = max_bytes
        self.seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self.app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self.seconds):
                body = await self._read(receive)
        except TimeoutError:
            message = f"the request was not sent within {self.seconds:g} seconds"
            slow = ApiError(408, message, "too_slow", headers={"Connection": "close"})
            await slow.response()(scope, receive, send)
            return
        except ApiError as error:
            await error.response()(scope, receive, send)
            return
        if body is None:
            return  # the client left while it was sending
        replayed = False

        async def receive_again() -> Message:
            nonlocal replayed
            if replayed:
                return await receive()
            replayed = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, receive_again, send)

    async def _read(self, receive: Receive) -> bytes | None:
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            chunk = message.get("body", b"")
            size += len(chunk)
            if size <= self.max_bytes:
                chunks.append(chunk)
            more = message.get("more_body", False)
            if size > self.max_bytes and (not more or size > _PATIENCE * self.max_bytes):
                raise ApiError(
                    413,
                    f"the body is larger than the limit of {self.max_bytes} bytes",
                    "body_too_large",
                    headers={"Connection": "close"},
                )
            if not more:
                return b"".join(chunks)
