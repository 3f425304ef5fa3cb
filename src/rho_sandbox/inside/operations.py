"""What one process may ask the other to do with its objects, by name."""

from __future__ import annotations

import operator
import types

from .remote import TOGETHER

TYPE_CHECKING = False  # importing `typing` would take longer than all that this file does
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def call(target: Any, /, *arguments: Any, **named: Any) -> Any:
    return target(*arguments, **named)


def enter(target: Any) -> Any:
    return type(target).__enter__(target)


def leave(target: Any, kind: Any, error: Any, _trace: Any) -> Any:
    return type(target).__exit__(target, kind, error, None)


def copied(target: Any) -> Any:
    import copy

    return copy.copy(target)


def deep_copied(target: Any) -> Any:
    import copy

    return copy.deepcopy(target)


def awaited(target: Any) -> Any:
    """What a coroutine returns, run to its end."""
    import asyncio

    return asyncio.run(target)


def rounded(name: str) -> Callable[[Any], Any]:
    def apply(target: Any) -> Any:
        import math

        return getattr(math, name)(target)

    return apply


OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": call,
    "step": call,
    "getattr": getattr,
    "setattr": setattr,
    "delattr": delattr,
    "isinstance": isinstance,
    "issubclass": issubclass,
    "iter": iter,
    "next": next,
    "len": len,
    "str": str,
    "repr": repr,
    "format": format,
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
    "hash": hash,
    "reversed": reversed,
    "round": round,
    "dir": dir,
    "divmod": divmod,
    "trunc": rounded("trunc"),
    "floor": rounded("floor"),
    "ceil": rounded("ceil"),
    "enter": enter,
    "exit": leave,
    "copy": copied,
    "deepcopy": deep_copied,
    "await": awaited,
}
for _name in (*TOGETHER, "index", "abs", "neg", "pos", "invert", "getitem", "setitem", "delitem"):
    if _name not in OPERATIONS:
        OPERATIONS[_name] = getattr(operator, f"__{_name}__")

PRIVATE = ("_", "gi_", "cr_", "ag_", "f_", "tb_", "co_")  # ways to frames, and so to everything
CLOSED = (types.ModuleType, types.FrameType, types.CodeType, types.TracebackType)


def permit_outsider(name: str, arguments: tuple[Any, ...], handed_out: bool) -> None:
    """Refuse what untrusted code must not do with an object that it was handed by the tests.

    It may use it: call it, go through it, read its public members. What leads from an object to
    the program it is part of stays out of reach, and so does everything it was not handed.
    """
    target = arguments[0] if arguments else None
    closed = not handed_out or any(isinstance(argument, CLOSED) for argument in arguments)
    if closed or name not in OPERATIONS or name in ("copy", "deepcopy", "await", "dir"):
        raise PermissionError(f"{name} is not for the solution")
    if name in ("getattr", "setattr", "delattr") and (
        type(arguments[1]) is not str
        or arguments[1].startswith(PRIVATE)
        or (name != "getattr" and isinstance(target, (type, types.FunctionType)))
    ):
        raise PermissionError(f"{name} of {arguments[1]!r} is not for the solution")
