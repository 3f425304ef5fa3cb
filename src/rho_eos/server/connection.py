"""How a connection behaves: what of HTTP is taken, how long it may take, and how it ends.

uvicorn's protocol on h11, with limits that an app behind it could not set: it sees neither the
framing of a body nor the connection that an answer goes out on.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from rho_eos.server.config import ServerConfig

#: A body in pieces smaller than this on average costs more to take apart than it carries.
SMALLEST_CHUNK = 512
_FREE_CHUNKS = 256
#: Time for a client to read the answer to a request that it is still sending, and in which it must
#: take some of what is left of one, before the connection is cut.
_LINGER_SECONDS = 2.0
_MOST_WAITS = 60


class StrictConnection(h11.Connection):
    """h11, less what lets two readers of one request see two, and bodies made of crumbs."""

    _chunked = False
    _chunks = 0
    _bytes = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name.lower() for name, _ in event.headers}
            self._chunked = b"transfer-encoding" in names
            self._chunks = self._bytes = 0
            if self._chunked and b"content-length" in names:
                self._refuse("Content-Length together with Transfer-Encoding")
        elif isinstance(event, h11.Data) and self._chunked:
            self._chunks += 1
            self._bytes += len(event.data)
            free = max(0, self._chunks - _FREE_CHUNKS)
            if self._bytes < SMALLEST_CHUNK * free:
                self._refuse("a body in many small chunks")
        return event

    def _refuse(self, what: str) -> None:
        self._cstate.process_error(self.their_role)
        raise h11.RemoteProtocolError(what)


class PatientTransport:
    """A transport that closes in a way the client notices.

    Closed while data arrives, a connection is reset, and the client may lose the answer that tells
    it why. So our side ends first, and what still comes is thrown away unread for a moment. One
    whose client takes nothing for that long is cut: closing would wait for it for ever.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self.still_sending = False  # the client, as far as anybody knows
        self.leaving = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self.leaving or self._transport.is_closing()

    def close(self) -> None:
        if self.is_closing():
            return
        self.leaving = True
        if self.still_sending and self._transport.can_write_eof():
            self._transport.write_eof()
            self._transport.resume_reading()
        else:
            self._transport.close()
        self._wait(_MOST_WAITS)

    def _wait(self, times: int) -> None:
        """Look again later, as long as the client goes on taking what it was sent."""
        left = self._transport.get_write_buffer_size()
        self._loop.call_later(_LINGER_SECONDS, self._cut_unless_taken, left, times - 1)

    def _cut_unless_taken(self, left: int, times: int) -> None:
        if times and 0 < self._transport.get_write_buffer_size() < left:
            self._wait(times)
        else:
            self._transport.abort()


def strict_protocol(config: ServerConfig) -> type[H11Protocol]:
    """The protocol for uvicorn, with the limits of this server.

    It closes a connection on which the head of a request takes too long, and cuts one whose client
    takes nothing of an answer for as long as an answer may take; bodies have their own limit, and
    uvicorn itself closes those that stay silent between requests.
    """

    class StrictProtocol(H11Protocol):
        _patience: asyncio.TimerHandle | None = None
        _unread: asyncio.TimerHandle | None = None

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.conn = StrictConnection(h11.SERVER)

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            patient: Any = PatientTransport(transport, self.loop)
            super().connection_made(patient)
            self._watch_head()

        def connection_lost(self, exc: Exception | None) -> None:
            for timer in (self._patience, self._unread):
                if timer is not None:
                    timer.cancel()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            if self._unread is None:
                self._unread = self.loop.call_later(config.deadline_seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._unread is not None:
                self._unread.cancel()
                self._unread = None

        def data_received(self, data: bytes) -> None:
            if self.transport.leaving:  # type: ignore[attr-defined]
                return  # nobody will read it
            super().data_received(data)
            self._note_sending()
            self._watch_head()

        def eof_received(self) -> None:
            self._note_sending(ended=True)
            super().eof_received()

        def on_response_complete(self) -> None:
            # An answer that came before the end of its request is the last of its connection.
            self._note_sending()
            if self.transport.still_sending:  # type: ignore[attr-defined]
                self.transport.close()
            super().on_response_complete()

        def send_400_response(self, msg: str) -> None:
            self.transport.still_sending = True  # type: ignore[attr-defined]
            if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                super().send_400_response(msg)
            else:  # it was answered already
                self.transport.close()
            if self.cycle is not None and not self.cycle.response_complete:
                self.cycle.disconnected = True  # whoever waits for the rest of it
                self.cycle.message_event.set()

        def _should_upgrade(self) -> bool:
            return False  # there is nothing here but HTTP

        def _note_sending(self, ended: bool = False) -> None:
            sending = not ended and self.conn.their_state is h11.SEND_BODY
            self.transport.still_sending = sending  # type: ignore[attr-defined]

        def _watch_head(self) -> None:
            answering = self.cycle is not None and not self.cycle.response_complete
            if answering and self._patience is not None:
                self._patience.cancel()
                self._patience = None
            elif not answering and self._patience is None:
                self._patience = self.loop.call_later(config.body_seconds, self.transport.close)

    return StrictProtocol
