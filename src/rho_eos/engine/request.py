"""A request goes in, a handle comes out.

The handle is the only way to hear of a request: a step files what happened with the handle of each
row, so nobody can take what belongs to somebody else, and nothing is lost while nobody reads.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

from rho_eos.base.outputs import Output, StepRecord, TokenLogprob
from rho_eos.decoding.canvas import Canvas, Positions
from rho_eos.decoding.params import DecodeParams
from rho_eos.engine.errors import EngineError

Detokenize = Callable[[list[int]], str]


class LogitsProcessor(Protocol):
    """Changes the logits of one request before anything is read from them."""

    def __call__(self, canvas: Canvas, positions: Positions, logits: Any) -> Any:
        """(n, vocabulary) logits at `positions` of the canvas; returns the same, changed or new.

        It is called with one part of the positions after the other.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What is to be decoded, ready for an engine: a canvas of token ids and checked parameters."""

    id: str
    canvas: Canvas
    params: DecodeParams
    #: The texts around the gaps, one more than there are: the output's text is the filled whole.
    texts: tuple[str, ...] = ()
    #: Makes the text of what fills the gaps, where that is not just the filled whole.
    write: Callable[[list[str]], str] | None = None
    processors: tuple[LogitsProcessor, ...] = ()


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
        """It ended without a step of its own: cancelled or failed."""
        self.output, self.error = output, error
        self._tell()

    def _tell(self) -> None:
        if self._notify is not None:
            self._notify(self)
