"""What a command or a request may end with through no fault of the program."""

from typing import Any


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


class StorageError(RuntimeError):
    """A file cannot be written, most often because the disk is full: exit code 1."""


def needs_extra(what: str, package: str | None, extra: str) -> UserError:
    """For where an optional package is missing: what it is needed for, and how to get it."""
    return UserError(f"{what} needs {package}: pip install 'rho-eos[{extra}]'")
