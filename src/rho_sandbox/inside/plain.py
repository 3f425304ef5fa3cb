"""Plain values as bytes: all that passes between the untrusted code and its tests.

Reading builds None, bool, int, float, complex, str, bytes, list, tuple, set, frozenset and dict, of
exactly these types, and nothing else but `Opaque`, which stands for any other object. Nothing that
is read can run code, unlike pickle, or harm the interpreter, unlike marshal.
"""

from __future__ import annotations

import os
import struct

TYPE_CHECKING = False  # importing `typing` would take longer than all that this file does
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

DEPTH = 100  # of containers in containers
LARGEST = 64 << 20  # bytes of a message
SIZE, FLOAT, COMPLEX = struct.Struct("<I"), struct.Struct("<d"), struct.Struct("<dd")
CONSTANTS: dict[bytes, object] = {b"N": None, b"1": True, b"0": False}
CONTAINERS: dict[bytes, Callable[[Any], Any]] = {
    b"[": list,
    b"(": tuple,
    b"{": set,
    b"z": frozenset,
    b"d": lambda items: dict(zip(items[::2], items[1::2], strict=True)),
}
SCALARS: dict[type, tuple[bytes, Callable[[Any], bytes]]] = {
    int: (b"i", lambda value: value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)),
    float: (b"f", FLOAT.pack),
    complex: (b"c", lambda value: COMPLEX.pack(value.real, value.imag)),
    str: (b"s", lambda value: value.encode("utf-8", "surrogatepass")),
    bytes: (b"b", bytes),
}
MARKS: dict[type, bytes] = {list: b"[", tuple: b"(", set: b"{", frozenset: b"z", dict: b"d"}
READERS: dict[bytes, Callable[[bytes], Any]] = {
    b"i": lambda data: int.from_bytes(data, "little", signed=True),
    b"f": lambda data: FLOAT.unpack(data)[0],
    b"c": lambda data: complex(*COMPLEX.unpack(data)),
    b"s": lambda data: data.decode("utf-8", "surrogatepass"),
    b"b": bytes,
}


class BrokenWire(BaseException):
    """The other side does not keep to the protocol. Not an `Exception`: tests may catch those."""


class PeerGone(BrokenWire):
    """The other process has ended, or has closed its end."""


class Opaque:
    """An object of the untrusted code, for its tests, which can only pass it back.

    It is equal to nothing, also not to itself, neither true nor false, and has no members.
    """

    __slots__ = ("_opaque_key",)  # a name that no test asks an object of the code for

    def __init__(self, key: int | str) -> None:
        if type(key) not in (int, str):
            raise TypeError("an object of no number and no name")
        self._opaque_key = key  # its number in the other process, or its name among the code's own

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError("an object of the solution is neither true nor false")

    def __repr__(self) -> str:
        return "<an object of the solution>"


def write(value: Any, stand_in: Callable[[Any], Any]) -> bytes:
    """`value` as bytes; `stand_in` gives what stands for a value that is not plain."""
    parts: list[bytes] = []
    total = 0

    def add(mark: bytes, size: int, data: bytes = b"") -> None:
        nonlocal total
        parts.extend((mark, SIZE.pack(size), data))
        total += 5 + len(data)
        if total > LARGEST:
            raise ValueError(f"a value of more than {LARGEST >> 20} MiB")

    def put(value: Any, depth: int) -> None:
        kind = type(value)
        if value is None or kind is bool:
            add({None: b"N", True: b"1", False: b"0"}[value], 0)
        elif kind in SCALARS:
            mark, convert = SCALARS[kind]
            data = convert(value)
            add(mark, len(data), data)
        elif kind in MARKS:
            if depth == DEPTH:
                raise ValueError(f"a value of more than {DEPTH} containers in one another")
            items = [each for pair in value.items() for each in pair] if kind is dict else value
            add(MARKS[kind], len(items))
            for item in items:
                put(item, depth + 1)
        elif isinstance(value, Opaque):
            add(b"o", 0)
            put(value._opaque_key, depth)
        else:
            put(stand_in(value), depth)

    put(value, 0)
    return b"".join(parts)


def read(data: bytes, resolve: Callable[[Any], Any] = Opaque) -> Any:
    """The value that `write` has made these bytes of; `resolve` finds what an opaque one is."""
    position = 0

    def take(count: int) -> bytes:
        nonlocal position
        position += count
        if position > len(data):
            raise BrokenWire("a message that ends too early")
        return data[position - count : position]

    def get(depth: int) -> Any:
        mark, size = take(1), SIZE.unpack(take(4))[0]
        if mark in CONSTANTS:
            return CONSTANTS[mark]
        if mark in READERS:
            return READERS[mark](take(size))
        if depth > DEPTH:
            raise BrokenWire("a message that is too deep")
        if mark == b"o":
            return resolve(get(depth + 1))
        return CONTAINERS[mark]([get(depth + 1) for _ in range(size)])

    try:
        value = get(0)
    except Exception as error:
        raise BrokenWire(f"a message that cannot be read: {error!r}") from None
    if position != len(data):
        raise BrokenWire("a message that goes on after its end")
    return value


class Wire:
    """One end of two pipes, one for each direction."""

    def __init__(self, reader: int, writer: int) -> None:
        self.reader, self.writer = reader, writer

    def close(self) -> None:
        os.close(self.reader)
        os.close(self.writer)

    def send(self, data: bytes) -> None:
        left = memoryview(SIZE.pack(len(data)) + data)
        try:
            while left:
                left = left[os.write(self.writer, left) :]
        except OSError as error:
            raise PeerGone(str(error)) from None

    def receive(self) -> bytes:
        size = SIZE.unpack(self.take(SIZE.size))[0]
        if size > LARGEST:
            raise BrokenWire("a message of a size that cannot be")
        return self.take(size)

    def take(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                part = os.read(self.reader, min(count - len(data), 1 << 20))
            except OSError as error:
                raise PeerGone(str(error)) from None
            if not part:
                raise PeerGone("it has ended")
            data += part
        return bytes(data)
