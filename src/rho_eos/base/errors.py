"""What a command or a request may end with through no fault of the program."""


class UserError(ValueError):
    """Bad input, described in one sentence that says what was given and what is accepted.

    It means "the input is at fault": exit code 2, or HTTP 400.
    """


class StorageError(RuntimeError):
    """A file cannot be written, most often because the disk is full: exit code 1."""


def needs_extra(what: str, package: str | None, extra: str) -> UserError:
    """For where an optional package is missing: what it is needed for, and how to get it."""
    return UserError(f"{what} needs {package}: pip install 'rho-eos[{extra}]'")
