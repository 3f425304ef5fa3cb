"""A cell: one task asked with one set of parameters, in a folder named after all of that.

The name holds a digest of everything that decides the results (weights, task, parameters, samples,
data), so tables that need the same cell share its folder, and nothing stale is ever taken for it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from rho_eos.base.errors import UserError
from rho_eos.config import EngineConfig
from rho_eos.evals import find_task
from rho_eos.evals.fingerprint import fingerprint
from rho_eos.evals.runs.evaluation import Evaluation
from rho_eos.evals.runs.provenance import model_identity
from rho_eos.evals.runs.run_folder import SAMPLES, Line, read_samples
from rho_eos.reproduce.estimate import estimate_positions
from rho_eos.reproduce.plan import Plan, Row
from rho_eos.reproduce.profiles import Profile

FINISHED = "summary.json"  # written when every sample is there


@dataclass(frozen=True, slots=True)
class Cell:
    label: str
    evaluation: Evaluation  # of a single task
    folder: Path
    samples: int
    positions: float  # estimated, of all samples

    @property
    def task(self) -> str:
        return self.evaluation.tasks[0]

    @property
    def finished(self) -> bool:
        return (self.folder / FINISHED).exists()

    def done(self) -> int:
        """Answers that are there already."""
        return len(self.lines()) if (self.folder / SAMPLES).exists() else 0

    def lines(self, traces: bool = False) -> list[Line]:
        return read_samples(self.folder, traces)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What all cells of a reproduction have in common."""

    config: EngineConfig
    profile: Profile
    folder: Path
    limit: int | None = None
    skip: int = 0
    repeats: int = 1
    shuffle_seed: int | None = None
    data: Mapping[str, Path] = field(default_factory=dict)
    _model: dict[str, Any] = field(init=False)
    _data: dict[str, str] = field(init=False)
    _sizes: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_model", model_identity(self.config))
        prints = {task: fingerprint([path]) for task, path in self.data.items()}
        object.__setattr__(self, "_data", prints)

    @property
    def weights(self) -> str:
        return str(self._model["weights"])

    def cell(self, row: Row, task: str) -> Cell:
        evaluation = Evaluation(
            tasks=(task,),
            engine=self.config,
            params=row.params,
            limit=_fewer(self.limit, row.samples),
            skip=self.skip,
            repeats=self.repeats,
            shuffle_seed=self.shuffle_seed,
            data={task: self.data[task]} if task in self.data else {},
        )
        name = f"{task}-{row.params.policy}-{row.params.initial_length}-{self._digest(evaluation)}"
        samples = self._size(task) if evaluation.limit is None else evaluation.limit
        samples = min(samples, self._size(task)) * self.repeats
        positions = samples * estimate_positions(row.params, self.profile)
        return Cell(row.label, evaluation, self.folder / "cells" / name, samples, positions)

    def cells(self, plans: Iterable[Plan]) -> list[Cell]:
        """All that are needed, each once, in the order of the tables."""
        needed = [
            self.cell(row, task) for plan in plans for task in plan.tasks for row in plan.rows
        ]
        unique: dict[Path, Cell] = {}
        for cell in needed:
            unique.setdefault(cell.folder, cell)
        return list(unique.values())

    def _digest(self, evaluation: Evaluation) -> str:
        assert evaluation.params is not None
        content: dict[str, Any] = {
            "model": self._model,
            "task": evaluation.tasks,
            "data": self._data.get(evaluation.tasks[0]),
            "params": evaluation.params.recorded(),
            "samples": (evaluation.limit, evaluation.repeats, evaluation.shuffle_seed),
        }
        identity = find_task(evaluation.tasks[0]).identity()
        content |= {"identity": identity} if identity else {}
        content |= {"skip": evaluation.skip} if evaluation.skip else {}
        text = json.dumps(content, sort_keys=True)
        return blake2b(text.encode(), digest_size=6).hexdigest()

    def _size(self, task: str) -> int:
        """How many samples there are. They are loaded, so bad data is found before a model is."""
        if task not in self._sizes:
            all_of_it = self.shuffle_seed is not None or self.limit is None
            enough = None if all_of_it else self.skip + (self.limit or 0)
            there = len(find_task(task).load(self.data.get(task), enough))
            if there <= self.skip:
                raise UserError(f"skip is {self.skip}, but {task} has {there} samples")
            self._sizes[task] = there - self.skip
        return self._sizes[task]


def _fewer(*counts: int | None) -> int | None:
    return min((count for count in counts if count is not None), default=None)
