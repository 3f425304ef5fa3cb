"""What happens around every request: an id, a line in the log, limits on the body, safe headers."""

import asyncio
import errno
import logging
import re
import time
import uuid
from contextvars import ContextVar

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rho_eos.server.errors import RETRY, ApiError, bad_request

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
DOCS = "/docs"
#: What the page at /docs loads: FastAPI's choice of Swagger UI, and its own inline script.
_DOCS_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' https://cdn.jsdelivr.net; "
    "style-src 'self' 'unsafe-inline' https://cdn.jsdelivr.net; "
    "img-src 'self' data: https://fastapi.tiangolo.com; "
    "object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
)
#: Asked every few seconds by whoever watches the server.
_PROBES = ("/health", "/ready")
#: A body that is too large is read on (and thrown away) up to so many times the limit, because a
#: client that is still sending would see a broken connection instead of the answer.
_PATIENCE = 16
#: Lists and objects take far longer to read than texts of their size: so many in each byte that a
#: body may have. Brackets in texts count as well, which leaves room for those.
_CONTAINERS_PER_BYTE = 0.1
_FEW_CONTAINERS = 1000


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
                if scope["path"] == DOCS:
                    headers["Content-Security-Policy"] = _DOCS_POLICY
            await send(message)

        try:
            await self.app(scope, receive, send_named)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            # Told like those who could not even be let in: not with a traceback for each.
            context = {"message": "a request needed a file", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
            if not status:
                await _out_of_files().response()(scope, receive, send_named)
        finally:
            # The path is a client's word too: percent-encoded, it cannot forge a line of the log.
            path = scope.get("raw_path", b"").decode("ascii", "backslashreplace")[:200]
            took = time.perf_counter() - started
            logger.log(
                logging.DEBUG if _is_probe(scope) and status < 400 else logging.INFO,
                *("%s %s %s %.3fs", scope["method"], path, status or "disconnected", took),
            )


def _out_of_files() -> ApiError:
    message = "the server has no file descriptors left; try again later"
    return ApiError(503, message, "overloaded", headers={**RETRY, "Connection": "close"})


def _is_probe(scope: Scope) -> bool:
    return scope["path"] in _PROBES or (scope["method"], scope["path"]) == ("HEAD", "/")


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
        most = max(_FEW_CONTAINERS, int(self.max_bytes * _CONTAINERS_PER_BYTE))
        if body.count(b"[") + body.count(b"{") > most:
            crowded = bad_request(f"the body holds more than {most} lists and objects")
            await crowded.response()(scope, receive, send)
            return
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
