"""By which names this server may be called.

A page of another site can have its own name point at this machine and then read answers as if they
were its own (DNS rebinding). Its browser still sends that name as `Host`, so names that nobody gave
this server are turned away. An address cannot be pointed elsewhere.
"""

import ipaddress
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from rho_eos.server.errors import ApiError

ANY = "*"
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class AllowedHosts:
    """The address it listens on, in all its spellings, and the names that were given."""

    def __init__(self, bound: str, names: Iterable[str]) -> None:
        self.names = {_plain(name) for name in (bound, *names)}
        self.bound = _address(_plain(bound))
        local = "localhost" in self.names or (self.bound is not None and self.bound.is_loopback)
        self.everywhere = self.bound is not None and self.bound.is_unspecified
        self.local = local or self.everywhere
        if self.local:
            self.names.add("localhost")

    def accepts(self, host: str) -> bool:
        name = _plain(_without_port(host))
        if ANY in self.names or name in self.names:
            return True
        address = _address(name)
        if address is None:
            return False
        return self.everywhere or (self.local and address.is_loopback) or address == self.bound


class HostCheck:
    """Turns away requests for a name that is not ours, before anything of them is read."""

    def __init__(self, app: ASGIApp, hosts: AllowedHosts) -> None:
        self.app = app
        self.hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = Headers(scope=scope).getlist("host") if scope["type"] == "http" else []
        # One is what a browser sends. Old clients send none, and no page can make them.
        if all(self.hosts.accepts(host) for host in given) and len(given) < 2:
            await self.app(scope, receive, send)
            return
        error = ApiError(
            421,
            "this server does not go by the name in the Host header; start it with "
            "--allowed-host to add one",
            "unknown_host",
            headers={"Connection": "close"},
        )
        await error.response()(scope, receive, send)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _plain(name: str) -> str:
    return name.strip().lower().removeprefix("[").removesuffix("]").removesuffix(".")


def _address(name: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped
