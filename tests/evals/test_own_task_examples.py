"""The examples of docs/tasks.md do what the page says, on the embedded model."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rho_eos.evals import find_task, task
from rho_eos.evals.runs.run_folder import read_samples
from rho_eos.evals.tasks.task_file import read_task_file
from tests.evals.command import Command

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
TASK_FILE = ROOT / "examples" / "task.yaml"


@pytest.fixture
def apples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`examples/task.py` imported, into a registry that is gone after the test."""
    monkeypatch.setattr(task, "TASKS", task.TASKS.fresh())
    importlib.import_module("examples.task")
    yield
    del sys.modules["examples.task"]


def test_the_task_file_is_solved_by_the_embedded_model(command: Command, tmp_path: Path) -> None:
    result = command("eval", "--task-file", TASK_FILE, "--limit", "4", "--out", tmp_path)
    assert result.code == 0, result.err
    lines = read_samples(tmp_path)
    assert [line["task"] for line in lines] == ["sums"] * 4
    assert sum(line["correct"] for line in lines) >= 3
    assert all("\n1) (" in line["prompt"] for line in lines)


def test_the_task_file_tells_right_from_wrong() -> None:
    task = read_task_file(TASK_FILE)
    for sample in task.load():
        answer = sample.data["answer"]
        assert task.grade(sample, task.gold(sample)).correct
        assert task.grade(sample, f"1) … = {answer}\n#### {answer}").correct
        assert not task.grade(sample, f"#### {answer + 1}").correct
        assert not task.grade(sample, str(answer)).correct


def test_the_class_is_solved_by_the_embedded_model(
    apples: None, command: Command, tmp_path: Path
) -> None:
    result = command("eval", "--tasks", "apples", "--limit", "4", "--out", tmp_path)
    assert result.code == 0, result.err
    lines = read_samples(tmp_path)
    assert [line["task"] for line in lines] == ["apples"] * 4
    assert sum(line["correct"] for line in lines) >= 3


def test_the_class_tells_right_from_wrong(apples: None) -> None:
    task = find_task("apples")
    samples = task.load(limit=5)
    assert samples == task.load()[:5]  # the same problems every time, however many are asked for
    for sample in samples:
        total = sum(sample.data["numbers"])
        assert task.grade(sample, f"so\n#### {total}").correct
        assert not task.grade(sample, f"#### {total - 1}").correct
        assert not task.grade(sample, "apples").correct


@pytest.mark.parametrize("name", ["task.yaml", "task.py"])
def test_the_page_shows_the_examples_as_they_are(name: str) -> None:
    text = (ROOT / "examples" / name).read_text(encoding="utf-8")
    code = text[text.index("import random") if name.endswith(".py") else text.index("name:") :]
    assert code.strip() in PAGE
