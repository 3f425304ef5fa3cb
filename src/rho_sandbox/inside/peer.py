"""One end of the talk between the untrusted code and its tests: ask, and answer while waiting."""

from __future__ import annotations

import _thread
import os
import types

from . import library, wire
from .operations import OPERATIONS
from .remote import Remote

TYPE_CHECKING = False  # importing `typing` would take longer than all that this file does
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

REQUEST, RESULT, ERROR = b"?", b"=", b"#"
FAILED = b"%"  # an error, and nothing about the containers of the request
LARGEST = 256 << 20
ENDINGS = (StopIteration, StopAsyncIteration)


class PeerGone(wire.BrokenWire):
    """The other process has ended, or has closed its end."""


class Wire:
    """One end of two pipes, one for each direction."""

    def __init__(self, reader: int, writer: int) -> None:
        self.reader, self.writer = reader, writer

    def close(self) -> None:
        os.close(self.reader)
        os.close(self.writer)

    def send(self, data: bytes) -> None:
        left = memoryview(wire.SIZE.pack(len(data)) + data)
        try:
            while left:
                left = left[os.write(self.writer, left) :]
        except OSError as error:
            raise PeerGone(str(error)) from None

    def receive(self) -> bytes:
        size = wire.SIZE.unpack(self.read(4))[0]
        if not 0 < size <= LARGEST:
            raise wire.BrokenWire("a message of a size that cannot be")
        return self.read(size)

    def read(self, count: int) -> bytes:
        parts = []
        while count:
            try:
                part = os.read(self.reader, min(count, 1 << 20))
            except OSError as error:
                raise PeerGone(str(error)) from None
            if not part:
                raise PeerGone("it has ended")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


class Peer:
    """Asks and answers. `permit` says what the other side may do with our objects.

    `broken` says why the talk ended, if it did. `failed` is an assertion of ours that failed while
    the other side used one of our objects. The other side heard of it, and may have hidden it.
    """

    def __init__(
        self,
        line: Wire,
        operations: dict[str, Callable[..., Any]] = OPERATIONS,
        permit: Callable[[str, tuple[Any, ...], bool], None] = lambda *_: None,
        before_answer: Callable[[], None] = lambda: None,
    ) -> None:
        self.line = line
        self.operations = operations
        self.permit = permit
        self.before_answer = before_answer
        self.broken: BaseException | None = None
        self.failed: BaseException | None = None
        self._lock = _thread.RLock()
        self._objects: list[Any] = []  # ours that the other side knows, kept alive for it
        self._numbers: dict[int, int] = {}
        self._remotes: dict[int, Any] = {}  # theirs that we know
        self._errors: dict[type, int] = {}  # classes that stand in for theirs

    def request(self, name: str, *arguments: Any, **named: Any) -> Any:
        """What the other side's operation returns, or the error it raises."""
        with self._lock:
            writer = wire.Writer(self, [])
            for part in (name, arguments, tuple(named.items())):
                writer.put(part)
            try:
                self.line.send(REQUEST + writer.data())
                while (message := self.line.receive())[:1] == REQUEST:
                    self._answer(message[1:])
                kind, result = message[:1], self._read_result(message, writer.shared)
            except wire.BrokenWire as error:
                self.broken = error
                raise
            if kind == RESULT:
                return result
            if isinstance(result, ENDINGS) and name not in ("next", "step"):
                # `map` and others would take it for their own end, and leave out what follows.
                raise RuntimeError(f"a call raised {type(result).__name__}") from result
            raise result

    def serve(self) -> None:
        """Answer until the other side has gone."""
        while True:
            try:
                message = self.line.receive()
            except PeerGone:
                return
            self._answer(message[1:])

    def _read_result(self, message: bytes, shared: list[Any]) -> Any:
        kind, reader = message[:1], wire.Reader(self, shared, message[1:])
        known = list(shared) if kind != FAILED else []
        try:
            result = reader.get()
            for container in known:
                reader.refill(container)
        except Exception as error:
            raise wire.BrokenWire(f"a message that cannot be read: {error!r}") from None
        if kind != RESULT and not isinstance(result, BaseException):
            raise wire.BrokenWire("an error that is none")
        return result

    def _answer(self, data: bytes) -> None:
        shared: list[Any] = []
        reader = wire.Reader(self, shared, data)
        try:
            name, arguments, named = reader.get(), reader.get(), dict(reader.get())
            handed_out = bool(arguments) and id(arguments[0]) in self._numbers
            self.permit(name, arguments, handed_out)
        except Exception as error:
            self.line.send(FAILED + self._write_result(error, []).data())
            return
        known = list(shared)
        try:
            kind, result = RESULT, self.operations[name](*arguments, **named)
        except wire.BrokenWire:
            raise
        except BaseException as error:
            kind, result = ERROR, error
            if self.failed is None and library.is_own_failure(error):
                self.failed = error
        self.before_answer()
        try:
            writer = self._write_result(result, known)
        except Exception as error:  # too deep, or changed by a thread
            kind, writer = FAILED, self._write_result(type(error)(str(error)), [])
        self.line.send(kind + writer.data())

    def _write_result(self, result: Any, known: list[Any]) -> wire.Writer:
        writer = wire.Writer(self, known)
        writer.put(result)
        for container in known:
            writer.put_contents(container)
        return writer

    def refer(self, value: object) -> tuple[bytes, int, Any]:
        if isinstance(value, Remote):
            return wire.THEIRS, value._number, None
        if isinstance(value, type) and issubclass(value, BaseException):
            if value in self._errors:
                return wire.THEIRS, self._errors[value], None
            return wire.OUR_ERROR, self._number(value), library.describe_error_class(value)
        mark = wire.OUR_COROUTINE if isinstance(value, types.CoroutineType) else wire.OURS
        return mark, self._number(value), None

    def _number(self, value: object) -> int:
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)
        return number

    def resolve(self, mark: bytes, number: int, description: Any) -> Any:
        if mark == wire.THEIRS:  # seen from there: one of ours
            return self._objects[number]
        if number not in self._remotes:
            if mark == wire.OUR_ERROR:
                made = library.error_class(*description)
                self._errors.setdefault(made, number)
                self._remotes[number] = made
            else:
                self._remotes[number] = Remote(self, number)
        found = self._remotes[number]
        return self._wait_for(found) if mark == wire.OUR_COROUTINE else found

    async def _wait_for(self, coroutine: Remote) -> Any:
        return self.request("await", coroutine)
