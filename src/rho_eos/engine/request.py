"""A request goes in, a handle comes out.

The handle is the only way to hear of a request: a step files what happened with the handle of each
row, so nobody can take what belongs to somebody else, and nothing is lost while nobody reads.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

from rho_eos.base.outputs import Output, StepRecord, TokenLogprob
from rho_eos.engine.errors import EngineError
from rho_eos.text.ask import Request

Detokenize = Callable[[list[int]], str]


class Detail(Enum):
    """How much is filed with a handle while its request runs."""

    OUTPUT = auto()  # the last step only
    TEXT = auto()  # also whenever more of the text has become final
    STEPS = auto()  # every denoising step


@dataclass(frozen=True, slots=True)
class StepEvent:
    """What one step did to one request, and its output if that was the last."""

    record: StepRecord
    delta: str  # text that became final; all deltas joined are the output's text
    token_ids: list[int]  # all tokens that are final so far
    draft_ids: list[int]  # the canvas behind them, the model's guesses in place of MASKs
    positions_evaluated: int  # so far
    output: Output | None
    logprobs: list[TokenLogprob] | None  # of `token_ids`, where they were asked for
    detokenize: Detokenize = field(repr=False, compare=False)

    @property
    def draft(self) -> str:
        """The rest of the text as the model sees it now; replaced by every later event."""
        return "" if self.output else self.detokenize(self.draft_ids)


class Handle:
    """One request on its way: `events` in order, then `output`; `result()` raises what failed."""

    def __init__(
        self,
        request: Request,
        detail: Detail = Detail.OUTPUT,
        notify: Callable[["Handle"], None] | None = None,
    ) -> None:
        self.request = request
        self.detail = detail
        self.submitted = time.perf_counter()
        self.events: deque[StepEvent] = deque()
        self.output: Output | None = None
        self.error: EngineError | None = None
        self._notify = notify  # called in the thread that steps, when something was filed

    @property
    def done(self) -> bool:
        return self.output is not None

    def result(self) -> Output:
        """The output of a request that is done."""
        if self.error is not None:
            raise self.error
        assert self.output is not None, "the request is still running"
        return self.output

    def file(self, event: StepEvent) -> None:
        self.events.append(event)
        self.output = event.output
        self._tell()

    def close(self, output: Output, error: EngineError | None = None) -> None:
        """Tell who waits that it has ended without a step of its own: cancelled or failed."""
        self.output, self.error = output, error
        self._tell()

    def _tell(self) -> None:
        if self._notify is not None:
            self._notify(self)
