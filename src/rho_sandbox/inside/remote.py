"""An object of the other process, as this one sees it: it passes on what it is asked.

It never decides about a plain value. Its comparisons and its arithmetic with one are not passed
on, because the answer would be whatever the untrusted code likes: it is not equal to any plain
value, and to calculate with one is a `TypeError`. `in` looks through its items here.
"""

from __future__ import annotations

from .library import is_own_failure

TYPE_CHECKING = False  # importing `typing` would take longer than all that this file does
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ALONE = (
    *("iter", "next", "len", "str", "repr", "bool", "int", "float", "complex", "index", "hash"),
    *("reversed", "abs", "neg", "pos", "invert", "round", "trunc", "floor", "ceil", "format"),
    *("getitem", "setitem", "delitem", "enter", "dir"),
)
TOGETHER = (
    *("eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "matmul", "truediv", "floordiv"),
    *("mod", "divmod", "pow", "lshift", "rshift", "and", "or", "xor"),
)
#: Members that say where in memory something lies: numpy would read ours.
ADDRESSES = ("__array_interface__", "__array_struct__", "__cuda_array_interface__")


class Remote:
    """Number `_number` among the objects that the process behind `_peer` has named."""

    __slots__ = ("_number", "_peer")

    def __init__(self, peer: Any, number: int) -> None:
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_number", number)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._peer.request("call", self, *arguments, **named)

    def __getattr__(self, name: str) -> Any:
        if name in ADDRESSES:
            raise AttributeError(f"an object of another process has no {name}")
        found = self._peer.request("getattr", self, name)
        if name in ("send", "throw") and type(found) is Remote:
            return Step(self._peer, found._number)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        self._peer.request("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        self._peer.request("delattr", self, name)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, Remote) and bool(self._peer.request("isinstance", value, self))

    def __subclasscheck__(self, value: Any) -> bool:
        return isinstance(value, Remote) and bool(self._peer.request("issubclass", value, self))

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        """A test that failed stays failed, whatever the block it stands in makes of errors."""
        quiet = bool(self._peer.request("exit", self, kind, error, trace))
        return quiet and not is_own_failure(error)

    def __copy__(self) -> Any:
        return self._peer.request("copy", self)

    def __deepcopy__(self, _memo: Any) -> Any:
        return self._peer.request("deepcopy", self)

    def __reduce_ex__(self, _protocol: Any) -> Any:
        raise TypeError("an object of the solution stays where it is")


class Step(Remote):
    """A method of a generator, which may come to its end like `next`."""

    __slots__ = ()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._peer.request("step", self, *arguments, **named)


def asks(name: str) -> Callable[..., Any]:
    def ask(self: Remote, *arguments: Any) -> Any:
        return self._peer.request(name, self, *arguments)

    return ask


def asks_two(name: str) -> Callable[..., Any]:
    def ask(self: Remote, other: Any) -> Any:
        if not isinstance(other, Remote):
            return NotImplemented
        return self._peer.request(name, self, other)

    return ask


for _name in ALONE:
    setattr(Remote, f"__{_name}__", asks(_name))
for _name in TOGETHER:
    setattr(Remote, f"__{_name}__", asks_two(_name))
