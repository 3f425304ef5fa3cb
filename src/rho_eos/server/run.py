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

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from rho_eos.errors import UserError
from rho_eos.server.app import create_app
from rho_eos.server.config import ServerConfig
from rho_eos.server.middleware import request_id
from rho_eos.server.service import Service

logger = logging.getLogger(__name__)

_GRACE = 5.0  # seconds for sending last answers after the engine has drained


def serve_forever(service: Service) -> None:
    """Serve until SIGTERM or SIGINT, then finish what is running and return."""
    log_to_stderr(service.config.log_level)
    spare_the_collector()
    config = service.config
    with listen(config.host, config.port) as listener:
        server = DrainingServer(
            uvicorn.Config(
                create_app(service),
                http=impatient_protocol(config),
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=int(config.drain_seconds + _GRACE),
            ),
            service,
        )
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        logger.info("serving %s at http://%s:%d", service.model, shown, port)
        asyncio.run(server.serve(sockets=[listener]))


def spare_the_collector() -> None:
    """What is loaded by now stays until the end: looking through all of it again in every full
    collection would hold up everybody for a fifth of a second."""
    gc.collect()
    gc.freeze()


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise UserError(
            f"cannot listen on {host} port {port}: {os.strerror(error.errno or 0)}"
        ) from error
    # Connections inherit it. asyncio would set it only on sockets that name their protocol, and
    # without it the body of an answer waits 40 ms for the client to acknowledge the head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


class DrainingServer(uvicorn.Server):
    """On the first signal: no new requests, running ones finish. On the second: out at once."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn raises the signal again when it is done, so that a drained server would still
        end as if killed. Ours has done what it was asked to, and exits with 0."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        yield

    def _on_signal(self) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True
        self._draining = asyncio.ensure_future(
            self.service.engine.drain(self.service.config.drain_seconds)
        )


def impatient_protocol(config: ServerConfig) -> type[H11Protocol]:
    """Closes a connection on which the head of a request takes too long; bodies have their own
    limit, and uvicorn itself closes those that stay silent between requests."""

    class ImpatientProtocol(H11Protocol):
        _patience: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._watch_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch_head()

        def _watch_head(self) -> None:
            answering = self.cycle is not None and not self.cycle.response_complete
            if answering and self._patience is not None:
                self._patience.cancel()
                self._patience = None
            elif not answering and self._patience is None:
                self._patience = self.loop.call_later(config.body_seconds, self.transport.close)

    return ImpatientProtocol


def log_to_stderr(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_name_request)
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(levelname)s %(name)s [%(request_id)s] %(message)s")
    )
    for name in ("rho_eos", "uvicorn"):
        logger = logging.getLogger(name)
        logger.setLevel(level.upper())
        logger.addHandler(handler)
        logger.propagate = False


def _name_request(record: logging.LogRecord) -> bool:
    record.request_id = request_id.get()
    return True
