"""Tasks from outside: registered by a program, or by an installed package."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rho_eos.base.errors import UserError
from rho_eos.evals import Grade, Sample, Task, find_task, register_task, task_names
from rho_eos.evals.runs.evaluation import Evaluation, evaluate
from rho_eos.evals.runs.sources import GoldAnswers
from rho_eos.evals.task import Selection
from tests import forks
from tests.evals.command import Command
from tests.packages import Packages


@pytest.fixture(autouse=True)
def own_registry(own_tasks: None) -> Iterator[None]:
    """What a test registers and imports is gone after it."""
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


#: The same in a module of its own, under another name.
MODULE = """
from pathlib import Path
from rho_eos.evals import Grade, Sample, Task, register_task

"""


def module(name: str, end: str) -> str:
    return MODULE + inspect.getsource(Echo).replace('"echo"', f'"{name}"') + end


def named(task_name: str, base: type[Task] = Echo, **members: Any) -> Any:
    """A class of another name."""
    return type(task_name, (base,), {"name": task_name, **members})


def gold(*tasks: str, **which: int) -> Evaluation:
    return Evaluation(tasks=tasks, engine=None, params=None, selection=Selection(**which))


def test_a_registered_class_is_a_task_like_any_other(command: Command, tmp_path: Path) -> None:
    assert register_task(Echo) is Echo
    assert task_names()[-1] == "echo"
    result = command("eval", "--policy", "gold", "--tasks", "echo", "--out", tmp_path)
    assert result.code == 0 and "echo" in result.out, result.err
    lines = evaluate(gold("echo", limit=2), tmp_path / "two", GoldAnswers)
    assert [line["prompt"] for line in lines] == ["Say 0", "Say 1"]  # its `load` ignores limits
    assert "echo" in command("eval", "--help").out
    words = ("eval", "--policy", "gold", "--tasks", "echo,gsm8k", "--out", tmp_path / "run")
    result = command(*words, "--data", "echo=x.jsonl")
    assert result.code == 2 and "echo reads no file, but --data gives it x.jsonl" in result.err


def test_a_name_is_taken_once_whenever_it_is_registered() -> None:
    with pytest.raises(UserError, match="a task named 'gsm8k' is registered already"):
        register_task(named("gsm8k"))
    assert type(find_task("gsm8k")).__name__ == "Gsm8k"
    register_task(Echo())
    register_task(Echo())  # a module may replace its own, as a notebook does
    taken = f"a task named 'echo' is registered already, by {__name__}"
    with pytest.raises(UserError, match=taken):
        register_task(named("echo", __module__="another_module"))
    with pytest.raises(UserError, match="'a,b' is no name for a task"):
        register_task(named("a,b"))
    with pytest.raises(UserError, match="'words' is no task"):
        register_task("words")  # type: ignore[type-var]


def test_a_name_of_ours_is_taken_before_anybody_has_looked_for_it() -> None:
    """In a process of its own, in which nothing is loaded yet."""
    done = forks.run("-c", module("gsm8k", "register_task(Echo())"))
    assert done.returncode != 0 and "'gsm8k' is registered already" in done.stderr


def test_ids_that_occur_twice_and_tasks_without_samples_are_refused(tmp_path: Path) -> None:
    for task in (Echo, named("same"), named("empty", load=lambda *_: [])):
        register_task(task)
    with pytest.raises(UserError, match="the id echo/0 occurs in echo and again in same"):
        evaluate(gold("echo", "same"), tmp_path / "run", GoldAnswers)
    with pytest.raises(UserError, match="the task empty has no samples"):
        evaluate(gold("empty"), tmp_path / "run", GoldAnswers)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("end", "value"),
    [("register_task(Echo())", None), ("", "outside:Echo"), ("task = Echo()", "outside:task")],
    ids=["a module", "a class", "a task"],
)
def test_an_entry_point_names_a_module_a_class_or_a_task(
    end: str, value: str | None, package: Packages
) -> None:
    package.install("outside", module("from-outside", end), value)
    assert "outside" not in sys.modules  # nothing is imported before a task is looked up
    assert "from-outside" in task_names()
    assert find_task("from-outside").load()[0].id == "echo/0"


def test_a_task_that_refuses_its_own_references_is_told_what_is_wrong(
    command: Command, tmp_path: Path
) -> None:
    register_task(
        named(
            "upside",
            gold=lambda *_: "a guess",
            grade=lambda _, s, t: Grade(t == s.data["word"], None, "no number"),
        )
    )
    result = command("eval", "--policy", "gold", "--tasks", "upside", "--out", tmp_path)
    assert result.code == 0
    for part in ("upside grades 5 of 5", "'a guess'", "finds nothing", "no number", "echo/0"):
        assert part in " ".join(result.err.split())


def test_everything_for_evaluations_from_python_has_one_home() -> None:
    from rho_eos import evals
    from rho_eos.evals.runs.evaluation import evaluate as the_real_one

    assert evals.evaluate is the_real_one
    assert all(getattr(evals, name) is not None for name in evals.__all__)
