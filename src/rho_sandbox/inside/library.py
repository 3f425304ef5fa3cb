"""Types that go by value although they are no plain ones: as a tuple of a name and plain values.

Types of the standard library and of numpy, named tuples, builtin types, modules and exceptions.
Whoever restores a value imports the module it is from, by a name in this file: the sender of a
message does not choose what is run.
"""

from __future__ import annotations

import builtins
import sys

TYPE_CHECKING = False  # importing `typing` would take longer than all that this file does
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

TYPES = {name: value for name, value in vars(builtins).items() if isinstance(value, type)}
TEXTS = {"decimal.Decimal", "fractions.Fraction", "uuid.UUID", "pathlib.PosixPath"}
DATES = {"datetime.date", "datetime.time", "datetime.datetime"}
FRAMES = "__frames_of_solution__"
VIEWS: dict[type, str] = {type({}.keys()): "keys", type({}.items()): "items"}
ARRAYS = "biufcUS"  # kinds of numpy's types whose items are plain values
OURS_ALONE = ("inside", "solution", "tests")  # modules of the sandbox and of those who run in it
FRAMEWORKS = ("unittest", "doctest")  # whose errors are words to whoever runs tests: "skip this"


def describe(value: Any) -> tuple[Any, ...] | None:
    """A value of one of these types as a name and plain values; None for all others."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if kind is type(sys):
        return ("module", value.__name__)
    if isinstance(value, type):
        known = TYPES.get(value.__name__)
        return ("type", value.__name__) if known is value else None
    if name in TEXTS:
        return ("text", name, str(value))
    if name in DATES:
        return ("date", name, value.isoformat())
    if name == "datetime.timedelta":
        return ("timedelta", value.days, value.seconds, value.microseconds)
    if name == "collections.deque":
        return ("deque", list(value), value.maxlen)
    if name in ("collections.Counter", "collections.OrderedDict"):
        return ("mapping", name, tuple(dict.items(value)))
    if kind in VIEWS:
        return (
            "view",
            VIEWS[kind],
            dict(value) if VIEWS[kind] == "items" else dict.fromkeys(value),
        )
    if isinstance(value, tuple) and isinstance(getattr(kind, "_fields", None), tuple):
        return ("named tuple", kind.__name__, kind._fields, tuple(value))
    return describe_numpy(value) if kind.__module__ == "numpy" else None


def describe_numpy(value: Any) -> tuple[Any, ...] | None:
    dtype = getattr(value, "dtype", None)
    if dtype is None or dtype.kind not in ARRAYS:
        return None
    if type(value).__name__ == "ndarray":
        return ("array", dtype.str, value.shape, value.tolist())
    return ("scalar", value.item()) if dtype.str != "<f16" else None


def restore(described: Any) -> Any:
    tag, *parts = described
    return RESTORE[tag](*parts)


def imported(name: str) -> Any:
    """A class by its module and its own name."""
    module, _, attribute = name.rpartition(".")
    return getattr(__import__(module), attribute)


def module(name: str) -> Any:
    """A module that is installed beside us: its files are not the sender's to write."""
    parts = name.split(".")
    known = all(part.isidentifier() and part[0] != "_" for part in parts)
    if not known or parts[0] in OURS_ALONE:
        raise ImportError(f"no module {name!r} for tests")
    __import__(name)
    return sys.modules[name]


def text(name: str, value: str) -> Any:
    return imported(name)(value) if name in TEXTS else None


def date(name: str, value: str) -> Any:
    return imported(name).fromisoformat(value) if name in DATES else None


def timedelta(days: int, seconds: int, microseconds: int) -> Any:
    return imported("datetime.timedelta")(days, seconds, microseconds)


def deque(items: list[Any], size: int | None) -> Any:
    return imported("collections.deque")(items, size)


def mapping(name: str, pairs: tuple[tuple[Any, Any], ...]) -> Any:
    kind = "Counter" if name.endswith("Counter") else "OrderedDict"
    return imported(f"collections.{kind}")(dict(pairs))


def view(name: str, items: dict[Any, Any]) -> Any:
    return items.keys() if name == "keys" else items.items()


def named_tuple(name: str, fields: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    """Not `collections.namedtuple`, which evaluates text."""

    def item(index: int) -> property:
        return property(lambda self: self[index])

    members: dict[str, Any] = {
        field: item(index)
        for index, field in enumerate(fields)
        if isinstance(field, str) and not field.startswith("_")
    }
    return type(str(name), (tuple,), members | {"_fields": tuple(fields)})(values)


def array(dtype: str, shape: tuple[int, ...], items: Any) -> Any:
    """An array of plain items only: another item could tell numpy where in memory to read."""
    numpy = __import__("numpy")
    kind, waiting = numpy.dtype(dtype), [items]
    while waiting:
        item = waiting.pop()
        if type(item) is list:
            waiting += item
        elif type(item) not in (bool, int, float, complex, str, bytes):
            raise TypeError("an array of what is no plain value")
    if kind.kind not in ARRAYS or kind.shape:
        raise TypeError("an array of no plain type")
    return numpy.array(items, dtype=kind).reshape(shape)


def error(kind: Any, arguments: Any, members: Any, frames: Any) -> BaseException:
    """An error of a class that this process has; `frames` says where it arose on the other side."""
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise TypeError("an error of no class of errors")
    try:
        made = kind(*arguments)
    except TypeError:
        made = kind.__new__(kind)
        made.args = arguments
    for name, value in members.items():
        if isinstance(name, str) and not name.startswith("_"):
            setattr(made, name, value)
    vars(made)[FRAMES] = [(str(function), int(line)) for function, line in frames]
    return made


def is_own_failure(error: BaseException | None) -> bool:
    """Whether a test of this process failed, as opposed to an assertion of the other one."""
    return isinstance(error, AssertionError) and FRAMES not in vars(error)


def error_class(name: str, module: str, base: str) -> type[BaseException]:
    """The class of an error of the other side: the same one if this process has it, too."""
    package = module.partition(".")[0]
    standard = package in sys.stdlib_module_names and package not in FRAMEWORKS
    ours = getattr(sys.modules.get(module), name, None) if standard else None
    if isinstance(ours, type) and issubclass(ours, BaseException):
        return ours
    parent = TYPES[base]
    if not issubclass(parent, BaseException):
        raise TypeError("an error class of no error")
    return type(str(name), (parent,), {})


def describe_error_class(kind: type[BaseException]) -> tuple[str, str, str]:
    base = next(parent for parent in kind.__mro__ if TYPES.get(parent.__name__) is parent)
    return kind.__name__, kind.__module__, base.__name__


RESTORE: dict[str, Callable[..., Any]] = {
    "module": module,
    "type": TYPES.__getitem__,
    "text": text,
    "date": date,
    "timedelta": timedelta,
    "deque": deque,
    "mapping": mapping,
    "view": view,
    "named tuple": named_tuple,
    "array": array,
    "scalar": lambda value: value,
}
