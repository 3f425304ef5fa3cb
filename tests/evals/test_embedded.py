"""Tasks of the embedded model and of docs/tasks.md: asked as trained, graded by what counts."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rho_eos.base.errors import UserError
from rho_eos.evals import find_task
from rho_eos.evals.runs.run_folder import read_samples
from rho_eos.evals.tasks.embedded import sample_of
from rho_eos.text.prompts import Encoder
from rho_problems import TASKS, held_out
from rho_problems.tokenizer import build_tokenizer
from tests.evals.command import Command
from tests.support import require_sandbox
from training.rows import RowMaker

names = st.sampled_from(list(TASKS))


def right(name: str, seed: int, text: str, difficulty: int | None = None) -> bool:
    problem = TASKS[name].problem(seed, difficulty)
    return find_task(name).grade(sample_of(problem), text).correct


@pytest.mark.parametrize("name", TASKS)
def test_the_model_reads_the_very_tokens_it_was_trained_on(name: str) -> None:
    task, tokenizer = find_task(name), build_tokenizer()
    rows = RowMaker(tokenizer, np.random.default_rng(0))
    for sample, problem in zip(task.load(limit=5), held_out(name, 5), strict=True):
        prompt = {"messages": task.messages(sample)}
        ids = Encoder(tokenizer, len(tokenizer)).prompt(prompt, answer_prefix=task.answer_prefix)
        trained_prompt, trained_answer = rows.encode(problem)
        assert sample.id == problem.id and ids == trained_prompt.tolist()
        assert task.grade(sample, tokenizer.decode(trained_answer)).correct


@settings(max_examples=8, deadline=None)
@given(names, st.integers(0, 10**6))
def test_the_gold_answer_is_right_and_empty_and_cut_off_ones_are_not(name: str, seed: int) -> None:
    require_sandbox()
    answer = TASKS[name].problem(seed).answer
    assert right(name, seed, answer) and right(name, seed, answer + "\n")
    assert not right(name, seed, "")
    assert not right(name, seed, answer[: len(answer) // 2])


def test_a_program_counts_by_what_it_does_not_how_it_is_written() -> None:
    require_sandbox()
    task = find_task("tiny-mbpp")
    [sample] = task.load(limit=1)
    other = task.gold(sample).replace("xs", "numbers")
    assert task.grade(sample, other).correct
    broken = task.grade(sample, other.replace("return numbers", "return numbers + [1]"))
    assert not broken.correct and "AssertionError" in broken.detail


def test_there_is_no_file_to_read() -> None:
    with pytest.raises(UserError, match="makes its own problems"):
        find_task("tiny-gsm").load(Path("x.jsonl"))
    assert len(find_task("tiny-math").load()) == 500


ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
TASK_FILE = ROOT / "examples" / "task.yaml"


@pytest.fixture
def apples(own_tasks: None) -> Iterator[None]:
    """`examples/task.py` imported; what it registers is gone after the test."""
    importlib.import_module("examples.task")
    yield
    del sys.modules["examples.task"]


@pytest.mark.parametrize(
    ("words", "name"), [(["--task-file", TASK_FILE], "sums"), (["--tasks", "apples"], "apples")]
)
def test_they_are_solved_by_the_embedded_model(
    words: list[object], name: str, apples: None, command: Command, tmp_path: Path
) -> None:
    result = command("eval", *words, "--limit", "4", "--out", tmp_path)
    assert result.code == 0, result.err
    lines = read_samples(tmp_path)
    assert [line["task"] for line in lines] == [name] * 4
    assert sum(line["correct"] for line in lines) >= 3


@pytest.mark.parametrize("name", ["task.yaml", "task.py"])
def test_the_page_shows_the_examples_as_they_are(name: str) -> None:
    text = (ROOT / "examples" / name).read_text(encoding="utf-8")
    code = text[text.index("import random") if name.endswith(".py") else text.index("name:") :]
    assert code.strip() in PAGE
