"""A line to a server that can be cut, as when the server's machine dies."""

import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit


class Line:
    """Listens at `url` and carries every connection to `server`, until it is cut."""

    def __init__(self, server: str) -> None:
        self._target = ("127.0.0.1", urlsplit(server).port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._ends:
            with suppress(OSError):  # it may have been closed by itself
                end.shutdown(socket.SHUT_RDWR)  # closing alone would wait for who is reading
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._target)
            self._ends += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=_carry, args=(source, target), daemon=True).start()


def _carry(source: socket.socket, target: socket.socket) -> None:
    try:
        while part := source.recv(65536):
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return
