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


class KeyMiddleware:
    """Refuses requests without one of the keys, before their bodies are read.

    How long a comparison takes says nothing of how close a wrong key was. Without any keys all
    requests pass.
    """

    def __init__(
        self, app: ASGIApp, keys: Iterable[str], open_paths: Collection[str] = OPEN_PATHS
    ) -> None:
        self.app = app
        self.digests = [_digest(key) for key in keys]
        self.open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self.digests or self._may_pass(scope):
            await self.app(scope, receive, send)
            return
        message = "a valid API key is needed: send it as 'Authorization: Bearer …'"
        error = ApiError(401, message, "invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
        await error.response()(scope, receive, send)

    def _may_pass(self, scope: Scope) -> bool:
        path: str = scope["path"]
        if path in self.open_paths or path.startswith(OPEN_FOLDER):
            return True
        scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
        offered = _digest(key.strip())
        matches = [hmac.compare_digest(offered, digest) for digest in self.digests]
        return scheme.lower() == "bearer" and any(matches)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
