"""What happened, step by step: replaying records into a canvas, and writing them down."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.registry import find_policy
from rho_eos.jsonl import ResultFile
from rho_eos.outputs import Output, StepRecord


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


def explain(params: DecodeParams, record: StepRecord) -> str:
    """What a step found out, if anything, and why it did what it did to the length.

    No policy is asked about a window.
    """
    if not record.refresh:
        computed = f"{record.computed} of {record.exact} positions computed"
        return f"A window: {computed}, so the length holds."
    why = find_policy(params.policy).explain(params, record)
    return f"{record.note} {why}" if record.note else why


MARKER = b'{"object": "rho_eos.step", "id": "'


def open_trace(path: Path, overwrite: bool) -> ResultFile:
    """A file with one line per step: the request's id and the record."""
    return ResultFile(path, marker=MARKER, overwrite=overwrite)


def trace_lines(output: Output) -> list[dict[str, Any]]:
    return [
        {"object": "rho_eos.step", "id": output.id, **record.as_dict()} for record in output.trace
    ]
