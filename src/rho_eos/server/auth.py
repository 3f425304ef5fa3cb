"""Bearer keys, compared in constant time."""

import hashlib
import hmac
from collections.abc import Collection, Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from rho_eos.server.errors import ApiError

#: Served without a key: the page itself, and what a load balancer asks.
OPEN_PATHS = ("/", "/health", "/ready", "/version")
OPEN_FOLDER = "/static/"


class KeyRing:
    """Accepts any of its keys. The time it takes tells nothing of how near a guess was."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def accepts(self, key: str) -> bool:
        offered = _digest(key)
        matches = [hmac.compare_digest(offered, digest) for digest in self._digests]
        return any(matches)


class KeyMiddleware:
    """Turns away who has no key, before anything of the request is read."""

    def __init__(
        self, app: ASGIApp, keys: KeyRing, open_paths: Collection[str] = OPEN_PATHS
    ) -> None:
        self.app = app
        self.open_paths = open_paths
        self.keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self.keys or self._may_pass(scope):
            await self.app(scope, receive, send)
            return
        error = ApiError(
            401,
            "a valid API key is needed: send it as 'Authorization: Bearer …'",
            "invalid_api_key",
            # Whatever else it would send is not worth reading.
            headers={"WWW-Authenticate": "Bearer", "Connection": "close"},
        )
        await error.response()(scope, receive, send)

    def _may_pass(self, scope: Scope) -> bool:
        path: str = scope["path"]
        if path in self.open_paths or path.startswith(OPEN_FOLDER):
            return True
        scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.keys.accepts(key.strip())


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
