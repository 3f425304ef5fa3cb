"""What may go wrong with a request through no fault of its own."""

import traceback

from rho_eos.base.errors import first_line


class EngineError(RuntimeError):
    """A request could not be served."""


class QueueFullError(EngineError):
    """Too many requests are in flight already; later there is room again."""


class UnavailableError(EngineError):
    """The worker is gone, or the engine takes no new requests any more."""


class RequestFailedError(EngineError):
    """The model or the policy raised while it worked on this request.

    Its words tell no more than the kind of that error, as clients of a server read them; `told` is
    for who runs the process: also what the error said, and in which line.
    """

    @property
    def told(self) -> str:
        cause = self.__cause__
        frames = traceback.extract_tb(cause.__traceback__) if cause is not None else None
        if cause is None or not frames or not str(self).endswith(type(cause).__name__):
            return str(self)
        said = f": {first_line(cause)}" if str(cause).strip() else ""
        return f"{self}{said} ({frames[-1].filename}, line {frames[-1].lineno})"


class NotFiniteError(ValueError):
    """The model's logits leave nothing to choose from."""


class DeadlineExceededError(EngineError):
    """The request was not finished in the time it had."""
