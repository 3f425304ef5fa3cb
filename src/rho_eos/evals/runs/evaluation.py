"""Run an evaluation: ask every sample, grade what comes back, keep it, and go on where it stopped.

    questions = samples × repeats, less what the folder holds already
    source.answers(questions)   the model decodes; answers come as they finish
    task.grade(…)               in threads beside it, so that the model never waits for a grader
    folder.append(line)         one line per sample, the moment it is graded

A folder is a cell of a table: evaluating a finished one again only reads it.
"""

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from rho_eos.base.errors import UserError
from rho_eos.base.fingerprint import fingerprint
from rho_eos.base.outputs import FinishReason, Output
from rho_eos.base.registry import code_of
from rho_eos.config import EngineConfig
from rho_eos.decoding.params import DecodeParams, merged
from rho_eos.decoding.policy import Infills
from rho_eos.decoding.registry import policies
from rho_eos.engine.errors import RequestFailedError
from rho_eos.evals import Sample, Task, find_task, task_names
from rho_eos.evals.graders.python_tests import find_sandbox, running_in
from rho_eos.evals.runs.provenance import model_identity, session_facts
from rho_eos.evals.runs.run_folder import Line, RunFolder, open_run
from rho_eos.evals.runs.sources import AnswerSource, Question
from rho_eos.evals.task import Selection
from rho_eos.files import jobs
from rho_eos.models.loading import open_checkpoint
from rho_eos.text.ask import Ask
from rho_eos.text.preparation import Preparer

GRADERS = 4  # threads

Answer = tuple[Output, float]  # with the seconds since its task began


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What is asked, of whom, how often. All of it decides the results.

    Args:
        tasks: Registered names, or tasks that no registry knows, such as those of files.
        engine: The model. None: the reference answers are graded, no model is asked.
        params: How the model decodes; None where there is no model.
        selection: Which samples of each task.
        data: The files of tasks that read one.
    """

    tasks: tuple[str | Task, ...]
    engine: EngineConfig | None
    params: DecodeParams | None
    selection: Selection = field(default_factory=Selection)
    data: Mapping[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.tasks:
            raise UserError("tasks is (), but takes at least one task, unless there is a task file")
        names = [task.name for task in self.all_tasks()]
        if len(set(names)) < len(names):
            raise UserError(f"tasks is {', '.join(names)}, but takes each task once")
        for task in self.tasks:
            if isinstance(task, Task) and task.name in task_names():
                raise UserError(
                    f"{task.name} is a registered task: give that of the file another name"
                )

    def all_tasks(self) -> list[Task]:
        return [find_task(task) if isinstance(task, str) else task for task in self.tasks]

    def settings(self, model: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What decides the results, for `run.json` and to check that a folder continues the same
        run.

        Args:
            model: The model's identity where it is known; it takes time to find out.
        """
        tasks, params = self.all_tasks(), self.params
        if model is None and self.engine is not None:
            model = model_identity(self.engine)
        if params is not None and self.engine is not None and "blocks" in (model or {}):
            # A block diffusion model has defaults of its own, which then decide the results.
            preparer = Preparer(open_checkpoint(self.engine), self.engine)
            params = preparer.decide(Ask(params=params))
        code = {} if params is None else params.code()
        codes = {f"code of task {task.name}": code_of(type(task)) for task in tasks}
        code |= {name: each for name, each in codes.items() if each is not None}
        return {
            "model": model,
            "tasks": [task.name for task in tasks],
            "task_identity": {
                f"{task.name} {key}": value
                for task in tasks
                for key, value in task.identity().items()
            },
            "params": {"policy": "gold"} if params is None else params.recorded(),
            **({"code": code} if code else {}),
            **self.selection.model_dump(),
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
    """Run an evaluation, or what is left of it.

    Args:
        evaluation: What is asked.
        folder: Where the run lies; it is begun if there is none, and refused if it is another's.
        open_source: Opens who answers; called only if something is left to ask.
        unsafe_code: Run what a model wrote without a sandbox, where none works.
        on_progress: Called at the beginning of a task and after each sample.

    Returns:
        The lines of the finished run.
    """
    settings, tasks = evaluation.settings(), evaluation.all_tasks()
    sandbox = find_sandbox(unsafe_code) if any(task.runs_code for task in tasks) else None
    asked = [make_questions(task, evaluation) for task in tasks]
    _check_ids(chain(*asked))
    with open_run(folder, settings) as run, running_in(sandbox):
        if all(each.id in run.ids for each in chain(*asked)):
            return run.lines
        source = open_source()
        facts = session_facts(evaluation.engine, sandbox and sandbox.value)
        session = run.begin_session(facts)
        for of_task in asked:
            _ask(of_task, source, run, session, on_progress)
        return run.lines


def make_questions(task: Task, evaluation: Evaluation) -> list[Question]:
    """Every sample of a task as often as asked; a repeat has noise of its own."""
    samples, questions = _choose(task, evaluation), []
    repeats = evaluation.selection.repeats
    for repeat in range(repeats):
        params = evaluation.params
        params = params and params.replaced(seed=params.seed + repeat)
        for sample in samples:
            id = sample.id if repeats == 1 else f"{sample.id}#{repeat}"
            asked = task.ask(sample)
            ask = {**asked, "params": _params_of(sample, params, asked)}
            questions.append(Question(id=id, ask=ask, task=task, sample=sample, repeat=repeat))
    if not questions:
        raise UserError(f"the task {task.name} has no samples")
    return questions


def _params_of(
    sample: Sample, params: DecodeParams | None, asked: Mapping[str, Any]
) -> DecodeParams | None:
    """The parameters of a run with those that its task gives for one sample."""
    if params is None:
        return None
    try:
        if own := asked.get("params"):
            given = merged(params.model_dump(exclude_unset=True), own)
            params = DecodeParams.from_mapping(given)
        if Ask(**{**asked, "params": params}).is_gap and "policy" not in params.model_fields_set:
            fills = [name for name, each in policies().items() if issubclass(each, Infills)]
            raise UserError(
                f"policy is missing: gaps are to be filled, by one of {', '.join(fills)}"
            )
    except UserError as error:
        raise UserError(f"{sample.id}: {error}") from error
    return params


def _choose(task: Task, evaluation: Evaluation) -> list[Sample]:
    """The first samples, or with a shuffle seed a random choice, the same for every run."""
    path, which = evaluation.data.get(task.name), evaluation.selection
    first, end = which.skip, None if which.limit is None else which.skip + which.limit
    if which.shuffle_seed is None:
        return task.load(path, end)[first:end]
    samples = list(task.load(path))  # a copy: it is the task's own
    random.Random(f"{task.name}/{which.shuffle_seed}").shuffle(samples)
    return samples[first:end]


def _check_ids(asked: Iterable[Question]) -> None:
    """Two samples of one id would count as one, whichever was answered last."""
    seen: dict[str, str] = {}
    for each in asked:
        name = each.task.name
        if each.id in seen:
            raise UserError(f"the id {each.id} occurs in {seen[each.id]} and again in {name}")
        seen[each.id] = name


def _ask(
    questions: Sequence[Question],
    source: AnswerSource,
    run: RunFolder,
    session: int,
    on_progress: Callable[[Progress], None],
) -> None:
    """Ask the questions of one task that the folder has no line of, and grade the answers."""
    ids = {each.id for each in questions}
    before = [line for line in run.lines if line["id"] in ids]
    right = sum(line["correct"] for line in before)
    progress = Progress(questions[0].task.name, len(questions), len(before), right)
    on_progress(progress)
    lock, started = threading.Lock(), time.perf_counter()

    def answers(pending: Iterator[Question]) -> jobs.Answers:
        with closing(source.answers(list(pending))) as outputs:
            for output in outputs:
                yield output.id, (output, time.perf_counter() - started)

    def finish(question: Question, answer: Answer) -> None:
        line = _line(question, answer[0]) | {"session": session, "elapsed": answer[1]}
        with lock:
            run.append(line)
            progress.done += 1
            progress.correct += line["correct"]
            progress.tokens += line.get("e_token", 0)
            progress.seconds = max(progress.seconds, line["elapsed"])
            on_progress(progress)

    jobs.run(questions, run.ids, answers, finish, GRADERS)


def _line(question: Question, answer: Output) -> Line:
    """Grade an answer, and say all that is known of it."""
    if answer.finish_reason is FinishReason.ERROR:
        raise RequestFailedError(f"{answer.id}: {answer.error}")
    task, sample = question.task, question.sample
    grade = task.grade(sample, answer.text)
    trace = [record.as_dict() for record in answer.trace]
    return {
        "id": question.id,
        "task": task.name,
        "sample": sample.id,
        "repeat": question.repeat,
        "correct": grade.correct,
        "extracted": grade.extracted,
        "detail": grade.detail,
        **({} if grade.score is None else {"score": grade.score}),
        "finish_reason": answer.finish_reason.value,
        **({} if answer.finish_reason is FinishReason.GOLD else answer.usage.as_dict()),
        "prompt": shown_ask(question.ask),
        "reference": task.gold(sample),
        "text": answer.text,
        **({"trace": trace} if trace else {}),
    }


def shown_ask(ask: Mapping[str, Any]) -> str:
    """What was asked, for a reader: of a chat its messages, and ___ where a suffix leaves a gap."""
    prompt = ask.get("prompt") or ""
    prompt = prompt.get("messages", prompt) if isinstance(prompt, Mapping) else prompt
    if not isinstance(prompt, str):
        turns = all(isinstance(each, Mapping) for each in prompt)
        prompt = "\n\n".join(each["content"] for each in prompt) if turns else f"{prompt}"
    template, suffix = ask.get("template"), ask.get("suffix")
    asked = "\n\n".join(f"{part}" for part in (prompt, template) if part)
    return asked if suffix is None else f"{asked}___{suffix}"


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
