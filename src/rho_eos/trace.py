"""What happened, step by step: replaying records into a canvas, and writing them down."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.registry import find_policy
from rho_eos.outputs import Output, StepRecord


@dataclass(slots=True)
class Cell:
    """One canvas position: a MASK (token is None), or a token and the step that committed it."""

    token: int | None = None
    confidence: float = 0.0
    step: int = -1


class Replay:
    """The canvas rebuilt from step records alone: what `watch`, plots and pages draw."""

    def __init__(self, length: int) -> None:
        self.cells = [Cell() for _ in range(length)]

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
    """Why a step did what it did, in a sentence. No policy is asked about a window."""
    if not record.refresh:
        computed = f"{record.computed} of {record.exact} positions computed"
        return f"A window: {computed}, so the length holds."
    return find_policy(params.policy).explain(params, record)


def write_trace(path: Path, outputs: Iterable[Output]) -> None:
    """One JSON line per step: the request's id and the record."""
    with path.open("w", encoding="utf-8") as file:
        for output in outputs:
            for record in output.trace:
                line = {"id": output.id, **record.as_dict()}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
