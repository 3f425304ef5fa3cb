"""Run an evaluation: ask every sample, grade what comes back, keep it, and go on where it stopped.

    jobs = samples × repeats, less what the folder holds already
    source.answers(jobs)      the model decodes; answers come as they finish
    task.grade(…)             in threads beside it, so that the model never waits for a grader
    folder.append(line)       one line per sample, the moment it is graded

A folder is a cell of a table: evaluating a finished one again only reads it.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rho_eos.base.errors import UserError
from rho_eos.base.outputs import FinishReason, Output
from rho_eos.config import EngineConfig
from rho_eos.decoding.params import DecodeParams
from rho_eos.engine.errors import RequestFailedError
from rho_eos.evals import Sample, Task, find_task, task_names
from rho_eos.evals.fingerprint import fingerprint
from rho_eos.evals.graders.python_tests import find_sandbox
from rho_eos.evals.runs.provenance import model_identity, session_facts
from rho_eos.evals.runs.run_folder import Line, RunFolder, open_run
from rho_eos.evals.runs.sources import AnswerSource, Job

GRADERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What is asked, of whom, how often. All of it decides the results."""

    tasks: tuple[str, ...]  # by their registered names
    engine: EngineConfig | None  # None: the reference answers are graded, no model is asked
    params: DecodeParams | None
    file_tasks: tuple[Task, ...] = ()  # beside them, those that no registry knows
    limit: int | None = None
    skip: int = 0  # samples of each task that are left out first, so that others can be reported
    repeats: int = 1
    shuffle_seed: int | None = None
    data: Mapping[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.tasks or self.file_tasks):
            raise UserError(
                "tasks is (), but takes the name of at least one task, unless there is a task file"
            )
        names = [*self.tasks, *(task.name for task in self.file_tasks)]
        if len(set(names)) < len(names):
            raise UserError(f"tasks is {', '.join(names)}, but takes each task once")
        for name in (*self.tasks, *self.data):
            find_task(name)
        for name in {task.name for task in self.file_tasks} & set(task_names()):
            raise UserError(f"{name} is a registered task: give that of the file another name")
        for name, least in (("limit", 1), ("skip", 0), ("repeats", 1), ("shuffle_seed", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UserError(f"{name} is {value}, but takes an integer of at least {least}")

    def all_tasks(self) -> list[Task]:
        return [*(find_task(name) for name in self.tasks), *self.file_tasks]

    def settings(self) -> dict[str, Any]:
        """For `run.json`, and for the check that a folder continues the same run."""
        model = None if self.engine is None else model_identity(self.engine)
        policy = {"policy": "gold"} if self.params is None else self.params.recorded()
        return {
            "model": model,
            "tasks": [task.name for task in self.all_tasks()],
            "task_identity": {
                f"{task.name} {key}": value
                for task in self.all_tasks()
                for key, value in task.identity().items()
            },
            "params": policy,
            "limit": self.limit,
            **({"skip": self.skip} if self.skip else {}),
            "repeats": self.repeats,
            "shuffle_seed": self.shuffle_seed,
            "data": {f"{task} data": fingerprint([path]) for task, path in self.data.items()},
        }


@dataclass(slots=True)
class Progress:
    """How far a task is, for whoever shows it."""

    task: str
    total: int
    done: int
    correct: int
    tokens: int = 0  # of answers of this session, as are the seconds
    seconds: float = 0.0


def evaluate(
    evaluation: Evaluation,
    folder: Path,
    open_source: Callable[[], AnswerSource],
    unsafe_code: bool = False,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> list[Line]:
    """The lines of the finished run. `open_source` is called only if something is left to ask."""
    settings = evaluation.settings()
    tasks, sandbox = _confined(evaluation.all_tasks(), unsafe_code)
    jobs = {task.name: make_jobs(task, evaluation) for task in tasks}
    _check_ids(jobs)
    with open_run(folder, settings) as run:
        if all(job.id in run.ids for of_task in jobs.values() for job in of_task):
            return run.lines
        source = open_source()
        session = run.begin_session(session_facts(evaluation.engine, sandbox))
        for of_task in jobs.values():
            _TaskRun(run, session, of_task, on_progress).ask(source)
        return run.lines


def make_jobs(task: Task, evaluation: Evaluation) -> list[Job]:
    """Every sample of a task as often as asked; a repeat has noise of its own."""
    return [
        Job(
            id=sample.id if evaluation.repeats == 1 else f"{sample.id}#{repeat}",
            task=task,
            sample=sample,
            repeat=repeat,
            params=_reseeded(evaluation.params, repeat),
        )
        for repeat in range(evaluation.repeats)
        for sample in _choose(task, evaluation)
    ]


def _choose(task: Task, evaluation: Evaluation) -> list[Sample]:
    """The first samples, or with a shuffle seed a random choice, the same for every run."""
    path = evaluation.data.get(task.name)
    first, limit = evaluation.skip, evaluation.limit
    end = None if limit is None else first + limit
    if evaluation.shuffle_seed is None:
        return task.load(path, end)[first:end]
    samples = list(task.load(path))  # a copy: it is the task's own
    random.Random(f"{task.name}/{evaluation.shuffle_seed}").shuffle(samples)
    return samples[first:end]


def _check_ids(jobs: Mapping[str, Sequence[Job]]) -> None:
    """Two samples of one id would count as one, whichever was answered last."""
    seen: dict[str, str] = {}
    for name, of_task in jobs.items():
        if not of_task:
            raise UserError(f"the task {name} has no samples")
        for job in of_task:
            if job.id in seen:
                raise UserError(f"the id {job.id} occurs in {seen[job.id]} and again in {name}")
            seen[job.id] = name


def _reseeded(params: DecodeParams | None, repeat: int) -> DecodeParams | None:
    return params and params.replaced(seed=params.seed + repeat)


def _confined(tasks: Sequence[Task], unsafe: bool) -> tuple[list[Task], str | None]:
    """The tasks with the sandbox they will use, if any runs code; found before a model is."""
    if not any(task.runs_code for task in tasks):
        return list(tasks), None
    backend = find_sandbox(unsafe)
    return [task.confined(backend) for task in tasks], backend.value


class _TaskRun:
    """One task of a run: hands jobs to the source, and its answers to the graders."""

    def __init__(
        self,
        run: RunFolder,
        session: int,
        jobs: Sequence[Job],
        on_progress: Callable[[Progress], None],
    ) -> None:
        self.run = run
        self.session = session
        self.jobs = {job.id: job for job in jobs}
        self.on_progress = on_progress
        before = [line for line in run.lines if line["id"] in self.jobs]
        self.progress = Progress(
            jobs[0].task.name, len(jobs), len(before), sum(line["correct"] for line in before)
        )
        self._lock = threading.Lock()

    def ask(self, source: AnswerSource) -> None:
        pending = [job for job in self.jobs.values() if job.id not in self.run.ids]
        self.on_progress(self.progress)
        started = time.perf_counter()
        grading: list[Future[None]] = []
        with ThreadPoolExecutor(GRADERS, "grader") as pool:
            try:
                with closing(source.answers(pending)) as answers:
                    for answer in answers:
                        elapsed = time.perf_counter() - started
                        grading.append(pool.submit(self._finish, answer, elapsed))
                        grading = _still_running(grading)
                for future in grading:
                    future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        if any(job.id not in self.run.ids for job in pending):
            raise RuntimeError("the source of answers ended before every job was answered")

    def _finish(self, answer: Output, elapsed: float) -> None:
        """Grade an answer and write its line. Runs in a grader's thread."""
        if answer.finish_reason is FinishReason.ERROR:
            raise RequestFailedError(f"{answer.id}: {answer.error}")
        job = self.jobs[answer.id]
        grade = job.task.grade(job.sample, answer.text)
        line = {
            "id": job.id,
            "task": job.task.name,
            "sample": job.sample.id,
            "repeat": job.repeat,
            "correct": grade.correct,
            "extracted": grade.extracted,
            "detail": grade.detail,
            "finish_reason": answer.finish_reason.value,
            **({} if answer.finish_reason is FinishReason.GOLD else answer.usage.as_dict()),
            "prompt": "\n\n".join(m["content"] for m in job.task.messages(job.sample)),
            "reference": job.task.gold(job.sample),
            "text": answer.text,
            "session": self.session,
            "elapsed": elapsed,
        }
        trace = [record.as_dict() for record in answer.trace]
        self.run.append(line | ({"trace": trace} if trace else {}))
        with self._lock:
            self.progress.done += 1
            self.progress.correct += grade.correct
            self.progress.tokens += answer.usage.e_token
            self.progress.seconds = max(self.progress.seconds, elapsed)
            self.on_progress(self.progress)


def _still_running(grading: list[Future[None]]) -> list[Future[None]]:
    """Those that are not done; one that failed ends the run."""
    done = [future for future in grading if future.done()]
    for future in done:
        future.result()
    return [future for future in grading if future not in done]


def find_data(tasks: Sequence[str], given: Sequence[str]) -> dict[str, Path]:
    """`--data PATH` for the one task that reads a file, `--data TASK=PATH` where there are more."""
    found: dict[str, Path] = {}
    for text in given:
        name, sign, path = text.partition("=")
        if sign and name in tasks:
            if not find_task(name).reads_file:
                raise UserError(f"{name} reads no file, but --data gives it {path}")
            found[name] = Path(path)
            continue
        readers = [task for task in tasks if find_task(task).reads_file]
        if len(readers) != 1:
            raise UserError(
                f"--data is {text!r}, but takes TASK=PATH unless exactly one task reads a file"
            )
        found[readers[0]] = Path(text)
    return found
