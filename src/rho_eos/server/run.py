"""The server as a process: sockets, signals, logs, and an orderly end."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import h11
import uvicorn

from rho_eos.base.errors import UserError
from rho_eos.engine.errors import UnavailableError
from rho_eos.server.app import create_app
from rho_eos.server.config import ServerConfig
from rho_eos.server.middleware import request_id
from rho_eos.server.service import Service

logger = logging.getLogger(__name__)

_GRACE = 5.0  # seconds for sending last answers after the engine has drained


def serve_forever(service: Service) -> None:
    """Serve until SIGTERM or SIGINT, then finish what is running and return."""
    config = service.config
    log_to_stderr(config.log_level)
    spare_the_collector()
    with listen(config.host, config.port) as listener:
        server = DrainingServer(uvicorn_config(service), service)
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        logger.info("serving %s at http://%s:%d", service.model, shown, port)
        if open_to_all(config):
            logger.warning(
                "whoever reaches %s may ask without a key: --api-key-file asks for one", host
            )
        asyncio.run(server.serve(sockets=[listener]))
    if server.failed:  # with an exit code that has systemd, Kubernetes and Docker start another
        raise UnavailableError("the engine's worker died, and the server with it")


def open_to_all(config: ServerConfig) -> bool:
    """Whether other machines can ask without a key."""
    names = {"localhost", "ip6-localhost"}
    with contextlib.suppress(ValueError):  # of a name nobody knows whom it reaches
        return not config.keys() and not ip_address(config.host).is_loopback
    return not config.keys() and config.host not in names


def uvicorn_config(service: Service) -> uvicorn.Config:
    """How uvicorn runs our app."""
    return uvicorn.Config(
        create_app(service),
        http="h11",
        ws="none",
        lifespan="on",  # the engine's worker starts there, so it must not fail silently
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(service.config.drain_seconds + _GRACE),
    )


def spare_the_collector() -> None:
    """Take what is loaded by now out of garbage collection, since it stays until the end. Looking
    through it in every full collection would stop the server for a fifth of a second."""
    gc.collect()
    gc.freeze()


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise UserError(f"cannot listen on {host} port {port}: {reason}") from error
    # Connections inherit this option. asyncio sets it only on sockets that name their protocol, and
    # without it the body of an answer waits 40 ms for the client to acknowledge the head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


class DrainingServer(uvicorn.Server):
    """On the first signal it takes no new requests and finishes the running ones; on the second it
    ends at once."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service
        self.failed = False

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn raises the signal again when it is done, so that the process ends as if killed.
        A server that has drained did what it was asked to, and exits with 0."""
        loop = asyncio.get_running_loop()
        tell_once_a_second(loop)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        self.service.engine.when_dead = self._on_death
        yield

    def _on_death(self) -> None:
        self.failed = self.should_exit = True

    def _on_signal(self, number: int) -> None:
        if self.should_exit:
            running = self.service.engine.in_flight
            logger.warning("signalled again: %d requests are cut off", running)
            # Cancelling what runs would take as long as a forward, and log a line for each.
            os._exit(128 + number)
        self.should_exit = True
        seconds = self.service.config.drain_seconds
        self._draining = asyncio.ensure_future(self.service.engine.drain(seconds))


def tell_once_a_second(loop: asyncio.AbstractEventLoop) -> None:
    """Log errors of the event loop, the same one at most once a second: without file descriptors
    every attempt to accept a connection is one."""
    said, when = "", 0.0

    def handle(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal said, when
        error = context.get("exception")
        message = f"{context['message']}: {type(error).__name__}: {error}"
        if message == said and loop.time() - when < 1:
            return
        said, when = message, loop.time()
        # What a client or the system did needs no traceback.
        expected = isinstance(error, OSError | h11.ProtocolError)
        logger.error("%s", message, exc_info=None if expected else error)

    loop.set_exception_handler(handle)


def log_to_stderr(level: str) -> None:
    """Log what rho-eos and uvicorn say; each line names the request that it is about."""

    def name_request(record: logging.LogRecord) -> bool:
        record.request_id = request_id.get()
        return True

    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(name_request)
    line = "%(asctime)s %(levelname)s %(name)s [%(request_id)s] %(message)s"
    handler.setFormatter(logging.Formatter(line))
    for name in ("rho_eos", "uvicorn"):
        logger = logging.getLogger(name)
        logger.setLevel(level.upper())
        logger.addHandler(handler)
        logger.propagate = False
