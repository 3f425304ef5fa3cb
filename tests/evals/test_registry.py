"""Tasks from outside: registered by a program, or by an installed package."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rho_eos.base.errors import UserError
from rho_eos.evals import Grade, Sample, Task, find_task, register_task, task_names
from rho_eos.evals import task as task_module
from rho_eos.evals.runs.evaluation import Evaluation, evaluate
from rho_eos.evals.runs.sources import GoldAnswers
from tests import forks
from tests.evals.command import Command
from tests.packages import Packages

TASK = """
from rho_eos.evals import Grade, Sample, Task, register_task

class Echo(Task):
    name = "{name}"
    def load(self, path=None, limit=None):
        return [Sample(f"echo/{{k}}", {{"word": str(k)}}) for k in range(3)]
    def prompt(self, sample):
        return sample.data["word"]
    def gold(self, sample):
        return sample.data["word"]
    def grade(self, sample, text):
        return Grade(text == sample.data["word"], text, "")
"""


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A registry that nobody has looked into yet, gone after the test."""
    monkeypatch.setattr(task_module, "TASKS", task_module.TASKS.fresh())
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("outside"):
            del sys.modules[name]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Packages:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return Packages(folder, "rho_eos.tasks")


class Echo(Task):
    """As simple as a task can be."""

    name = "echo"

    def load(self, _path: Path | None = None, limit: int | None = None) -> list[Sample]:
        return [Sample(f"echo/{number}", {"word": str(number)}) for number in range(5)]

    def prompt(self, sample: Sample) -> str:
        return f"Say {sample.data['word']}"

    def gold(self, sample: Sample) -> str:
        return str(sample.data["word"])

    def grade(self, sample: Sample, text: str) -> Grade:
        return Grade(text == self.gold(sample), text, "")


def gold(*tasks: str, limit: int | None = None) -> Evaluation:
    return Evaluation(tasks=tasks, engine=None, params=None, limit=limit)


def test_a_registered_class_is_a_task_like_any_other(command: Command, tmp_path: Path) -> None:
    assert register_task(Echo) is Echo
    assert task_names()[:1] == ["gsm8k"] and task_names()[-1] == "echo"
    result = command("eval", "--policy", "gold", "--tasks", "echo", "--out", tmp_path)
    assert result.code == 0 and "echo" in result.out, result.err
    lines = evaluate(gold("echo", limit=2), tmp_path / "two", GoldAnswers)
    assert [line["prompt"] for line in lines] == ["Say 0", "Say 1"]  # its `load` ignores limits
    assert "echo" in command("eval", "--help").out


def test_the_defaults_of_a_simple_class() -> None:
    task = Echo()
    assert task.messages(task.load()[0]) == [{"role": "user", "content": "Say 0"}]
    assert (task.answer_prefix, task.reads_file, task.runs_code) == ("", False, False)
    assert task.identity() == {}


def test_a_name_is_taken_once_whenever_it_is_registered() -> None:
    class Mine(Echo):
        name = "gsm8k"

    with pytest.raises(UserError, match="a task named 'gsm8k' is registered already"):
        register_task(Mine())
    assert type(find_task("gsm8k")).__name__ == "Gsm8k"
    register_task(Echo())
    register_task(Echo())  # a module may replace its own, as a notebook does

    class Theirs(Echo):
        __module__ = "another_module"

    with pytest.raises(
        UserError, match=f"a task named 'echo' is registered already, by {__name__}"
    ):
        register_task(Theirs)


def test_a_name_of_ours_is_taken_before_anybody_has_looked_for_it() -> None:
    """In a process of its own, in which nothing is loaded yet."""
    done = forks.run("-c", TASK.format(name="gsm8k") + "register_task(Echo())")
    assert done.returncode != 0 and "'gsm8k' is registered already" in done.stderr


def test_what_is_no_task_is_refused() -> None:
    class Nameless(Echo):
        name = "a,b"

    with pytest.raises(UserError, match="'a,b' is no name for a task"):
        register_task(Nameless)
    with pytest.raises(UserError, match="'words' is no task"):
        register_task("words")  # type: ignore[type-var]


def test_a_task_that_reads_no_file_is_given_none(command: Command, tmp_path: Path) -> None:
    register_task(Echo())
    words = ("eval", "--policy", "gold", "--tasks", "echo,gsm8k", "--out", tmp_path / "run")
    result = command(*words, "--data", "echo=x.jsonl")
    assert result.code == 2 and "echo reads no file, but --data gives it x.jsonl" in result.err


def test_ids_that_occur_twice_and_tasks_without_samples_are_refused(tmp_path: Path) -> None:
    class Same(Echo):
        name = "same"

    class Empty(Echo):
        name = "empty"

        def load(self, _path: Path | None = None, limit: int | None = None) -> list[Sample]:
            return []

    for task in (Echo, Same, Empty):
        register_task(task)
    with pytest.raises(UserError, match="the id echo/0 occurs in echo and again in same"):
        evaluate(gold("echo", "same"), tmp_path / "run", GoldAnswers)
    with pytest.raises(UserError, match="the task empty has no samples"):
        evaluate(gold("empty"), tmp_path / "run", GoldAnswers)
    assert not (tmp_path / "run").exists()


def test_what_a_task_says_of_itself_decides_whether_a_run_goes_on(tmp_path: Path) -> None:
    class Versioned(Echo):
        name = "versioned"
        version = 1

        def identity(self) -> dict[str, int]:
            return {"version": self.version}

    register_task(Versioned)
    evaluate(gold("versioned"), tmp_path, GoldAnswers)
    evaluate(gold("versioned"), tmp_path, GoldAnswers)
    Versioned.version = 2
    with pytest.raises(UserError, match="started with versioned version 1, not 2"):
        evaluate(gold("versioned"), tmp_path, GoldAnswers)


@pytest.mark.parametrize(
    ("end", "value"),
    [("register_task(Echo())", None), ("", "outside:Echo"), ("task = Echo()", "outside:task")],
    ids=["a module", "a class", "a task"],
)
def test_an_entry_point_names_a_module_a_class_or_a_task(
    end: str, value: str | None, package: Packages
) -> None:
    package.install("outside", TASK.format(name="from-outside") + end, value)
    assert "outside" not in sys.modules  # nothing is imported before a task is looked up
    assert "from-outside" in task_names()
    assert find_task("from-outside").load()[0].id == "echo/0"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import not_there", "ModuleNotFoundError: No module named 'not_there'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        (TASK.format(name="gsm8k") + "register_task(Echo())", "'gsm8k' is registered already"),
    ],
)
def test_a_broken_package_is_a_warning_and_the_others_work(
    source: str, reason: str, package: Packages, caplog: pytest.LogCaptureFixture
) -> None:
    package.install("outside", source)
    package.install("outside2", TASK.format(name="works") + "register_task(Echo())")
    assert {"gsm8k", "tiny-gsm", "works"} <= set(task_names())
    [warning] = caplog.messages
    assert "tasks of outside (outside) cannot be loaded" in warning and reason in warning
    assert "\n" not in warning
    task_names()
    assert len(caplog.messages) == 1  # said once
