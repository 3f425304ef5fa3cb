"""An object of the other process: asks it whatever it is asked.

It never decides about a plain value. Its comparisons and its arithmetic with one are not passed
on, because the answer would be whatever the untrusted code likes: it is not equal to any plain
value, and to calculate with one is a `TypeError`. `in` looks through its items here.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing `typing` would take longer than all that this file does
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ALONE = (
    *("iter", "next", "len", "str", "repr", "bool", "int", "float", "complex", "index", "hash"),
    *("reversed", "abs", "neg", "pos", "invert", "round", "trunc", "floor", "ceil", "format"),
    *("getitem", "setitem", "delitem", "enter", "exit", "dir"),
)
TOGETHER = (
    *("eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "matmul", "truediv", "floordiv"),
    *("mod", "divmod", "pow", "lshift", "rshift", "and", "or", "xor"),
)


class Remote:
    """Number `_number` among the objects that the process behind `_peer` has named."""

    __slots__ = ("_number", "_peer")

    def __init__(self, peer: Any, number: int) -> None:
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_number", number)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._peer.request("call", self, *arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return self._peer.request("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._peer.request("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        self._peer.request("delattr", self, name)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, Remote) and bool(self._peer.request("isinstance", value, self))

    def __subclasscheck__(self, value: Any) -> bool:
        return isinstance(value, Remote) and bool(self._peer.request("issubclass", value, self))

    def __copy__(self) -> Any:
        return self._peer.request("copy", self)

    def __deepcopy__(self, _memo: Any) -> Any:
        return self._peer.request("deepcopy", self)

    def __reduce_ex__(self, _protocol: Any) -> Any:
        raise TypeError("an object of the solution stays where it is")


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
