"""The canvas of a request rebuilt from its step records alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from rho_eos.base.outputs import StepRecord


@dataclass(slots=True)
class Cell:
    """One canvas position: a MASK (token is None), or a token and the step that committed it."""

    token: int | None = None
    confidence: float = 0.0
    step: int = -1


class Replay:
    """The canvas rebuilt from step records alone: what `watch`, plots and pages draw."""

    def __init__(self, length: int, given: Mapping[int, int] | None = None) -> None:
        """`given`: tokens that stand on the canvas from the start, by position."""
        self.cells = [Cell() for _ in range(length)]
        for position, token in (given or {}).items():
            self.cells[position] = Cell(token, 1.0)

    def apply(self, record: StepRecord) -> None:
        for position, token, confidence in record.committed:
            self.cells[position] = Cell(token, confidence, record.step)
        if record.moved is None:
            return
        before, self.cells = self.cells, []
        for first, count in record.moved:
            self.cells += (
                [Cell() for _ in range(count)] if first is None else before[first : first + count]
            )
        for position, written in record.written:
            self.cells[position] = Cell(written, 1.0, record.step)
