"""The one exception that means "the input is at fault": exit code 2, or HTTP 400."""


class UserError(ValueError):
    """Bad input, described in one sentence that says what was given and what is accepted."""
