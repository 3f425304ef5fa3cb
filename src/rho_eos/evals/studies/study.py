"""A study asks one model many things, and keeps every answer in cells that its tables share.

A cell is one task asked with one set of parameters, in a folder of its own. The folder's name holds
a digest of everything that decides the results (weights, task, parameters, samples, data). So
tables that need the same cell share it, and results of something else are never taken for it.
"""

import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from hashlib import blake2b
from itertools import groupby
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
from rho_eos.evals.runs.table import Table
from rho_eos.evals.task import Selection
from rho_eos.models.known import EMBEDDED
from rho_problems import TASKS

PUBLISHED_TASKS = ("gsm8k", "math500", "mbpp", "humaneval")
EMBEDDED_TASKS = tuple(TASKS)
ABOUT = "study.json"
FINISHED = "summary.json"  # of a cell; it is written when every sample is there


@dataclass(frozen=True, slots=True)
class StudyRow:
    """A row of a table, or a curve of a figure."""

    label: str
    params: DecodeParams
    samples: int | None = None  # at most so many; None: as many as were asked for
    series: str = ""  # the name that it shares with rows which differ from it in their length only
    section: str = ""  # what a survey's row has in common with those that it is compared with
    start: int | None = None  # of a survey's row; None: one run stands for every initial length


@dataclass(frozen=True, slots=True)
class Plan:
    """What a table is made of, or a figure."""

    name: str
    title: str
    tasks: Sequence[str]
    rows: Sequence[StudyRow]


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
    selection: Selection = field(default_factory=Selection)
    data: Mapping[str, Path] = field(default_factory=dict)
    panels: bool = False  # whether each panel of a figure becomes a file of its own, too
    _sizes: dict[str, int] = field(init=False, default_factory=dict)

    @cached_property
    def _model(self) -> dict[str, Any]:
        return model_identity(self.config)

    def cell(self, row: StudyRow, task: str) -> Cell:
        limits = [limit for limit in (self.selection.limit, row.samples) if limit is not None]
        evaluation = Evaluation(
            tasks=(task,),
            engine=self.config,
            params=row.params,
            selection=self.selection.replaced(limit=min(limits, default=None)),
            data={task: self.data[task]} if task in self.data else {},
        )
        settings = json.dumps(evaluation.settings(self._model), sort_keys=True)
        digest = blake2b(settings.encode(), digest_size=6).hexdigest()
        name = f"{task}-{row.params.policy}-{row.params.initial_length}-{digest}"
        samples = min([self._size(task), *limits]) * self.selection.repeats
        return Cell(row.label, task, evaluation, self.folder / "cells" / name, samples)

    def cells(self, plans: Iterable[Plan]) -> list[Cell]:
        """All that the plans need, each once, in their order."""
        unique: dict[Path, Cell] = {}
        for plan in plans:
            for task in plan.tasks:
                for cell in (self.cell(row, task) for row in plan.rows):
                    unique.setdefault(cell.folder, cell)
        return list(unique.values())

    def run(
        self,
        plans: Sequence[Plan],
        open_source: Callable[[], AnswerSource],
        watch: Watch,
        unsafe_code: bool = False,
    ) -> Iterator[Plan]:
        """Run what is missing; an interrupted cell goes on where it stopped. Each plan is given
        back when all its cells are finished."""
        self._begin(self.cells(plans), unsafe_code)
        for plan in plans:
            for cell in self.cells([plan]):
                if not cell.finished:
                    show = partial(watch, cell)
                    lines = evaluate(cell.evaluation, cell.folder, open_source, unsafe_code, show)
                    write_summary(cell.folder, lines)
            yield plan

    def _begin(self, cells: Sequence[Cell], unsafe_code: bool) -> None:
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

    def asked(self) -> dict[str, Any]:
        """Who was asked which samples."""
        model = {"model": self.config.model, "weights": str(self._model["weights"])}
        return model | self.selection.model_dump()

    def samples_note(self) -> str:
        """Which samples were asked, in words."""
        which, asked = self.selection, "all samples"
        if which.limit is not None:
            asked = f"the {'' if which.skip else 'first '}{which.limit} samples of a task"
            if which.shuffle_seed is not None:
                asked = f"{which.limit} samples drawn with seed {which.shuffle_seed}"
        asked += f" behind the first {which.skip}" if which.skip else ""
        return asked + (f", {which.repeats} times" if which.repeats > 1 else "")

    def _size(self, task: str) -> int:
        """How many samples there are. They are loaded, so bad data is found before a model is."""
        if task not in self._sizes:
            which = self.selection
            all_of_it = which.limit is None or which.shuffle_seed is not None
            enough = None if all_of_it else which.skip + (which.limit or 0)
            there = len(find_task(task).load(self.data.get(task), enough))
            if there <= which.skip:
                raise UserError(f"skip is {which.skip}, but {task} has {there} samples")
            self._sizes[task] = there - which.skip
        return self._sizes[task]


@dataclass(frozen=True, slots=True)
class Result:
    """What a study found, as data: a table, what it says, and what a reader must know about it.

    Markdown, CSV, LaTeX and JSON are written from it.
    """

    name: str
    title: str
    table: Table
    notes: Sequence[str]
    section: str = "task"  # the column whose values part the table into several
    #: Of a section: what it says in sentences, `says`, and the facts that these are made of.
    verdicts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)  # more for the JSON: what was asked, …
    picture: str | None = None  # the name of its figure, which lies in the same folder

    def write(self, folder: Path) -> None:
        """NAME.md for people; NAME.csv and NAME.tex are the bare table; NAME.json is all of it."""
        self.table.write(folder / self.name)
        (folder / f"{self.name}.md").write_text(self.markdown(), encoding="utf-8")
        write_json(folder / f"{self.name}.json", self.as_dict())

    def as_dict(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "columns": list(self.table.columns),
            "rows": [list(row) for row in self.table.rows],
            "notes": list(self.notes),
            "verdicts": dict(self.verdicts),
            **self.facts,
        }

    def verdict_lines(self) -> list[str]:
        return [f"**{name}.** {verdict['says']}" for name, verdict in self.verdicts.items()]

    def markdown(self) -> str:
        picture = [f"![{self.title}]({self.picture}.png)"] if self.picture else []
        tables = [f"**{name}**\n\n{table.markdown().rstrip()}" for name, table in self.sections()]
        parts = [f"# {self.title}", *self.verdict_lines(), *picture, *tables, *self.notes]
        return "\n\n".join(parts) + "\n"

    def sections(self) -> list[tuple[str, Table]]:
        """The same rows, a table for each section; that column is gone."""
        table = self.table
        at = list(table.columns).index(self.section)

        def without(row: Sequence[str]) -> list[str]:
            return [*row[:at], *row[at + 1 :]]

        return [
            (name, Table(without(table.columns), [without(row) for row in rows], table.labels - 1))
            for name, rows in groupby(table.rows, key=lambda row: row[at])
        ]


def usual_tasks(model: str) -> tuple[str, ...]:
    """The benchmarks that suit a model."""
    return EMBEDDED_TASKS if model in EMBEDDED else PUBLISHED_TASKS


def drawing(module: str) -> Any:
    """A module that draws with matplotlib, which is an extra."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise needs_extra("drawing figures", "matplotlib", "plots") from None
