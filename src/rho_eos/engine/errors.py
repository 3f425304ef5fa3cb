"""What may go wrong with a request through no fault of its own."""


class EngineError(RuntimeError):
    """A request could not be served."""


class QueueFullError(EngineError):
    """Too many requests are in flight already; later there is room again."""


class UnavailableError(EngineError):
    """The worker is gone, or the engine takes no new requests any more."""


class RequestFailedError(EngineError):
    """The model or the policy raised while it worked on this request."""


class NotFiniteError(ValueError):
    """The model's logits leave nothing to choose from."""


class DeadlineExceededError(EngineError):
    """The request was not finished in the time it had."""
