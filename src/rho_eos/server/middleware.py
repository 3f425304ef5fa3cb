"""What happens around every request: an id, a line in the log, checks of host, key and body."""

import asyncio
import hmac
import ipaddress
import logging
import re
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from urllib.parse import urlsplit

from h11 import LocalProtocolError
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rho_eos.server.errors import ApiError, bad_request

logger = logging.getLogger(__name__)
request_id: ContextVar[str] = ContextVar("request_id", default="-")

DOCS = "/docs"
#: Monitoring asks for these every few seconds.
_PROBES = ("/health", "/ready")
#: Served without a key: the page itself, and what a load balancer asks.
_OPEN_PATHS = ("/", "/version", *_PROBES)
_GOOD_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)
_SAFE_HEADERS = {
    # The page makes pictures of its charts itself, and shows them as blob: addresses.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
#: The page at /docs loads scripts, styles and pictures from wherever FastAPI chooses.
_DOCS_POLICY = "object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
#: Lists and objects take far longer to read than a text of their size, so a body may hold one for
#: every ten bytes of the size limit. Brackets within texts are counted, too.
_BYTES_PER_CONTAINER = 10
_FEW_CONTAINERS = 1000
_CLOSE = {"Connection": "close"}


class Layer(ABC):
    """Stands around an app, for HTTP alone. An `ApiError` that it raises is the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await (self.handle if scope["type"] == "http" else self.app)(scope, receive, send)
        except ApiError as error:
            await error.response()(scope, receive, send)

    @abstractmethod
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on to the app, changed or not, or refuse it."""


class RequestLog(Layer):
    """Gives every request an id (the client's X-Request-ID, if that is sane) and logs its end."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        offered = Headers(scope=scope).get("x-request-id", "")
        name = offered if _GOOD_ID.fullmatch(offered) else f"req-{uuid.uuid4().hex}"
        request_id.set(name)
        started, status = time.perf_counter(), 0

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update({"X-Request-ID": name, **_SAFE_HEADERS})
                if scope["path"] == DOCS:
                    headers["Content-Security-Policy"] = _DOCS_POLICY
            # What stood behind the request was no HTTP: uvicorn has answered that and hung up.
            with suppress(LocalProtocolError):
                await send(message)

        try:
            await self.app(scope, receive, send_named)
        finally:
            # The path comes from the client. Percent-encoded, it cannot forge a line of the log.
            path = scope.get("raw_path", b"").decode("ascii", "backslashreplace")[:200]
            took = time.perf_counter() - started
            probe = scope["path"] in _PROBES or (scope["method"], scope["path"]) == ("HEAD", "/")
            logger.log(
                logging.DEBUG if probe and status < 400 else logging.INFO,
                *("%s %s %s %.3fs", scope["method"], path, status or "disconnected", took),
            )


class HostCheck(TrustedHostMiddleware):
    """Refuses requests whose Host is a name that nobody gave this server.

    A page of another site can point its own name at this machine and then read our answers as its
    own (DNS rebinding), but its browser still sends that name. Addresses pass, because an address
    cannot be pointed at another machine.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        super().__init__(app, ["localhost", *names], www_redirect=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        known = scope["type"] != "http" or _is_address(Headers(scope=scope).get("host", ""))
        await (self.app if known else super().__call__)(scope, receive, send)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
    return True


class KeyCheck(Layer):
    """Refuses requests without one of the keys, before their bodies are read.

    Keys are compared in constant time, so how long it takes says nothing of how close a wrong key
    was. Without any keys all requests pass.

    Args:
        app: What is behind this check.
        keys: All keys that are accepted.
        docs: Whether the page at /docs and what it reads are open, too.
        own: Paths that take a key of their own, and none of the others.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: Iterable[str],
        docs: bool,
        own: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(app)
        self.own = {path: [key.encode()] for path, key in (own or {}).items()}
        self.keys = [key.encode() for key in keys]
        self.open_paths = (*_OPEN_PATHS, DOCS, "/openapi.json") if docs else _OPEN_PATHS

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, headers = scope["path"], Headers(scope=scope)
        scheme, _, key = headers.get("authorization", "").partition(" ")
        offered = key.strip().encode()
        keys = self.own.get(path, self.keys)
        matches = [hmac.compare_digest(offered, key) for key in keys]
        known = not keys or (scheme.lower() == "bearer" and any(matches))
        if not (known or path in self.open_paths or path.startswith("/static/")):
            message = "a valid API key is needed: send it as 'Authorization: Bearer …'"
            bearer = {"WWW-Authenticate": "Bearer"}
            raise ApiError(401, message, "invalid_api_key", headers=bearer)
        await self.app(scope, receive, send)


class BodyLimit(Layer):
    """Reads the whole body before the app runs, within limits of size and time.

    What still comes of a body after it was refused is thrown away by uvicorn.
    """

    def __init__(
        self,
        app: ASGIApp,
        max_bytes: int,
        seconds: float,
        own: Mapping[str, tuple[int, float]] | None = None,
    ) -> None:
        super().__init__(app)
        self.limits = (max_bytes, seconds)
        self.own = own or {}  # bytes and seconds of paths whose bodies are no JSON
        self.max_containers = max(_FEW_CONTAINERS, max_bytes // _BYTES_PER_CONTAINER)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if "content-length" in headers and "transfer-encoding" in headers:
            # A proxy that believes the other of two lengths would see two requests, not one.
            message = "Content-Length and Transfer-Encoding do not go together"
            raise ApiError(400, message, "invalid_value", headers=_CLOSE)
        reads = scope["method"] not in ("GET", "HEAD", "OPTIONS")
        max_bytes, seconds = self.own.get(scope["path"], self.limits)
        try:
            async with asyncio.timeout(seconds):
                body = await self._read(receive, max_bytes) if reads else b""
        except TimeoutError:
            late = f"the request was not sent within {seconds:g} seconds"
            raise ApiError(408, late, "too_slow", headers=_CLOSE) from None
        if body is None:
            return  # the client left while it was sending
        is_json = scope["path"] not in self.own
        if is_json and body.count(b"[") + body.count(b"{") > self.max_containers:
            raise bad_request(f"the body holds more than {self.max_containers} lists and objects")
        whole = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive_again() -> Message:
            return next(whole, None) or await receive()

        await self.app(scope, receive_again, send)

    async def _read(self, receive: Receive, max_bytes: int) -> bytes | None:
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > max_bytes:
                limit = f"the body is larger than the limit of {max_bytes} bytes"
                raise ApiError(413, limit, "body_too_large")
        return bytes(body)
