"""What a command or a request may end with through no fault of the program."""

import difflib
import re
from collections.abc import Iterable
from typing import Any, Self

_LONGEST_SHOWN = 200  # characters of a bad value that a sentence repeats


class UserError(ValueError):
    """The input is at fault: exit code 2, or HTTP 400.

    Args:
        sentence: What is wrong, for people: what was given and what is accepted.
        field: The parameter that is at fault, where it is one.
        got: The value that was given for it.
        takes: What the parameter accepts, in words.
    """

    def __init__(
        self, sentence: str, field: str | None = None, got: Any = None, takes: str | None = None
    ) -> None:
        super().__init__(sentence)
        self.field = field
        self.got = got
        self.takes = takes

    @classmethod
    def of(cls, field: str, got: Any, takes: str, verb: str = "is") -> Self:
        """A value that a parameter does not accept."""
        return cls(f"{field} {verb} {shown(got)}, but takes {takes}", field, got, takes)


class TokenizerError(UserError):
    """A checkpoint's tokenizer gave up, in a way that its library did not foresee."""


class StorageError(RuntimeError):
    """A file cannot be written, most often because the disk is full: exit code 1."""


def needs_extra(what: str, package: str | None, extra: str) -> UserError:
    """The error for a missing optional package: what needs it, and how to install it."""
    return UserError(f"{what} needs {package}: pip install 'rho-eos[{extra}]'")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'threshold'?` for a misspelt name, or nothing if no known name is close."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f"; did you mean {near[0]!r}?" if near else ""


def one_of(known: Iterable[str], got: Any) -> str:
    """What a name must be, in words, with the one that was probably meant."""
    names = list(known)
    return f"one of {', '.join(names)}{did_you_mean(got, names) if isinstance(got, str) else ''}"


def first_line(error: BaseException) -> str:
    """The first line of what another library's error says, or its kind where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def printable(text: str) -> str:
    """A text with its control characters written out: a terminal obeys them."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", lambda found: repr(found[0])[1:-1], text)


def shown(value: Any) -> str:
    """A value as a sentence repeats it, cut where it is long."""
    try:
        text = repr(value[:_LONGEST_SHOWN] if isinstance(value, str | bytes) else value)
    except (ValueError, RecursionError):  # an integer or a nesting that Python will not print
        return f"a value of type {type(value).__name__}"
    cut = len(text) > _LONGEST_SHOWN or (isinstance(value, str) and len(value) > _LONGEST_SHOWN)
    return text[:_LONGEST_SHOWN] + "…" if cut else text
