"""The one exception that means "the input is at fault": exit code 2, or HTTP 400."""


class UserError(ValueError):
    """Bad input, described in one sentence that says what was given and what is accepted."""


def needs_extra(what: str, package: str | None, extra: str) -> UserError:
    """For where an optional package is missing: what it is needed for, and how to get it."""
    return UserError(f"{what} needs {package}: pip install 'rho-eos[{extra}]'")
