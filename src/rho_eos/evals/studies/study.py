"""A study asks one model many things, and keeps every answer in cells that its tables share.

A cell is one task asked with one set of parameters, in a folder of its own. The folder's name holds
a digest of everything that decides the results (weights, task, parameters, samples, data). So
tables that need the same cell share it, and results of something else are never taken for it.
"""

import importlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from rho_eos import __version__
from rho_eos.base.errors import UserError, needs_extra
from rho_eos.config import EngineConfig
from rho_eos.decoding.params import DecodeParams
from rho_eos.evals import find_task
from rho_eos.evals.graders.python_tests import find_sandbox
from rho_eos.evals.runs.evaluation import Evaluation, Progress, evaluate
from rho_eos.evals.runs.provenance import model_identity
from rho_eos.evals.runs.report import write_summary
from rho_eos.evals.runs.run_folder import SAMPLES, Line, read_samples, write_json
from rho_eos.evals.runs.sources import AnswerSource
from rho_eos.models.known import EMBEDDED

PUBLISHED_TASKS = ("gsm8k", "math500", "mbpp", "humaneval")
EMBEDDED_TASKS = ("tiny-gsm", "tiny-math", "tiny-mbpp", "tiny-humaneval")
ABOUT = "study.json"
FINISHED = "summary.json"  # of a cell; it is written when every sample is there


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table, or a curve of a figure."""

    label: str
    params: DecodeParams
    samples: int | None = None  # at most so many; None: as many as were asked for
    series: str = ""  # what figures join it with; if there is nothing, it stands alone


@dataclass(frozen=True, slots=True)
class Plan:
    """What a table is made of, or a figure."""

    name: str
    title: str
    tasks: Sequence[str]
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Cell:
    """One row on one task."""

    label: str
    task: str
    evaluation: Evaluation  # of this task only
    folder: Path
    samples: int

    @property
    def finished(self) -> bool:
        return (self.folder / FINISHED).exists()

    @property
    def done(self) -> int:
        """How many answers are there."""
        return len(self.lines()) if (self.folder / SAMPLES).exists() else 0

    def lines(self, traces: bool = False) -> list[Line]:
        return read_samples(self.folder, traces)


Watch = Callable[[Cell, Progress], None]  # it is told how far the running cell is


@dataclass(frozen=True, kw_only=True)
class Study:
    """What all cells have in common, and the folder they lie in."""

    config: EngineConfig
    folder: Path
    limit: int | None = None
    skip: int = 0
    repeats: int = 1
    shuffle_seed: int | None = None
    data: Mapping[str, Path] = field(default_factory=dict)
    _sizes: dict[str, int] = field(init=False, default_factory=dict)

    @cached_property
    def _model(self) -> dict[str, Any]:
        return model_identity(self.config)

    def cell(self, row: Row, task: str) -> Cell:
        limits = [limit for limit in (self.limit, row.samples) if limit is not None]
        evaluation = Evaluation(
            tasks=(task,),
            engine=self.config,
            params=row.params,
            limit=min(limits, default=None),
            skip=self.skip,
            repeats=self.repeats,
            shuffle_seed=self.shuffle_seed,
            data={task: self.data[task]} if task in self.data else {},
        )
        settings = json.dumps(evaluation.settings(self._model), sort_keys=True)
        digest = blake2b(settings.encode(), digest_size=6).hexdigest()
        name = f"{task}-{row.params.policy}-{row.params.initial_length}-{digest}"
        samples = min([self._size(task), *limits]) * self.repeats
        return Cell(row.label, task, evaluation, self.folder / "cells" / name, samples)

    def cells(self, plans: Iterable[Plan]) -> list[Cell]:
        """All that the plans need, each once, in their order."""
        unique: dict[Path, Cell] = {}
        for plan in plans:
            for task in plan.tasks:
                for cell in (self.cell(row, task) for row in plan.rows):
                    unique.setdefault(cell.folder, cell)
        return list(unique.values())

    def begin(self, cells: Sequence[Cell], unsafe_code: bool) -> None:
        """Look for what the last cell will need before the first one runs; then claim the folder,
        since tables of two models would overwrite each other."""
        if any(find_task(cell.task).runs_code for cell in cells if not cell.finished):
            find_sandbox(unsafe_code)
        path, model = self.folder / ABOUT, self.config.model
        other = json.loads(path.read_text(encoding="utf-8"))["model"] if path.exists() else model
        if other != model:
            raise UserError(
                f"{self.folder} holds a study of {other}, not of {model}: give another --out"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        made = datetime.now(UTC).isoformat(timespec="seconds")
        write_json(path, {**self.asked(), "rho-eos": __version__, "made": made})

    def run(
        self,
        plan: Plan,
        open_source: Callable[[], AnswerSource],
        watch: Watch,
        unsafe_code: bool = False,
    ) -> None:
        """Run what is missing of a plan's cells; an interrupted one goes on where it stopped."""
        for cell in self.cells([plan]):
            if not cell.finished:
                show = partial(watch, cell)
                lines = evaluate(cell.evaluation, cell.folder, open_source, unsafe_code, show)
                write_summary(cell.folder, lines)

    def asked(self) -> dict[str, Any]:
        """Who was asked which samples."""
        which = {name: getattr(self, name) for name in ("limit", "skip", "repeats", "shuffle_seed")}
        return {"model": self.config.model, "weights": str(self._model["weights"]), **which}

    def samples_note(self) -> str:
        """Which samples were asked, in words."""
        asked = "all samples"
        if self.limit is not None:
            asked = f"the {'' if self.skip else 'first '}{self.limit} samples of a task"
            if self.shuffle_seed is not None:
                asked = f"{self.limit} samples drawn with seed {self.shuffle_seed}"
        asked += f" behind the first {self.skip}" if self.skip else ""
        return asked + (f", {self.repeats} times" if self.repeats > 1 else "")

    def _size(self, task: str) -> int:
        """How many samples there are. They are loaded, so bad data is found before a model is."""
        if task not in self._sizes:
            all_of_it = self.limit is None or self.shuffle_seed is not None
            enough = None if all_of_it else self.skip + (self.limit or 0)
            there = len(find_task(task).load(self.data.get(task), enough))
            if there <= self.skip:
                raise UserError(f"skip is {self.skip}, but {task} has {there} samples")
            self._sizes[task] = there - self.skip
        return self._sizes[task]


def usual_tasks(model: str) -> tuple[str, ...]:
    """The benchmarks that suit a model."""
    return EMBEDDED_TASKS if model in EMBEDDED else PUBLISHED_TASKS


def drawing(module: str) -> Any:
    """A module that draws with matplotlib, which is an extra."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise needs_extra("drawing figures", "matplotlib", "plots") from None
