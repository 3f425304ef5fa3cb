"""What happened, step by step: replaying records into a canvas, and writing them down."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from rho_eos.outputs import Output, StepRecord


@dataclass(slots=True)
class Cell:
    """One canvas position: a MASK (token is None), or a token and the step that committed it."""

    token: int | None = None
    confidence: float = 0.0
    step: int = -1


class Replay:
    """The canvas rebuilt from step records alone: what `watch`, plots and pages draw."""

    def __init__(self, length: int, eos: int) -> None:
        self.cells = [Cell() for _ in range(length)]
        self.eos = eos

    def apply(self, record: StepRecord) -> None:
        for position, token, confidence in record.committed:
            self.cells[position] = Cell(token, confidence, record.step)
        if record.action == "insert":
            assert record.at is not None
            length = len(self.cells) + record.change
            self.cells[record.at : record.at] = [Cell() for _ in range(record.inserted - 1)]
            del self.cells[length:]
        elif record.change > 0:
            added = Cell(self.eos, 1.0, record.step) if record.action == "close" else Cell()
            self.cells += [replace(added) for _ in range(record.change)]
        elif record.change < 0:
            del self.cells[record.change :]


def write_trace(path: Path, outputs: Iterable[Output]) -> None:
    """One JSON line per step: the request's id and the record."""
    with path.open("w", encoding="utf-8") as file:
        for output in outputs:
            for record in output.trace:
                line = {"id": output.id, **record.as_dict()}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
