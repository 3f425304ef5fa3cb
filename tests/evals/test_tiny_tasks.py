"""The embedded model's tasks as benchmarks: the same verdicts as its own graders."""

from pathlib import Path

import numpy as np
import pytest

from rho_eos.errors import UserError
from rho_eos.evals import find_task, task_names
from rho_eos.prompts import encode_prompt
from rho_eos.tiny.rows import RowMaker
from rho_eos.tiny.tasks import TASKS, held_out
from rho_eos.tiny.tokenizer import build_tokenizer

NAMES = ("tiny-gsm", "tiny-math", "tiny-mbpp", "tiny-humaneval")


def test_they_are_registered_beside_the_published_ones() -> None:
    assert {*NAMES, "gsm8k", "humaneval"} <= set(task_names())


@pytest.mark.parametrize("name", NAMES)
def test_the_prompt_goes_in_as_trained(name: str) -> None:
    task = find_task(name)
    assert task.answer_prefix == ""
    for sample, problem in zip(task.load(limit=5), held_out(name, 5), strict=True):
        assert sample.id == problem.id
        assert task.messages(sample) == [{"role": "user", "content": problem.prompt}]
        assert task.gold(sample) == problem.answer


@pytest.mark.parametrize("name", NAMES)
def test_the_model_reads_the_very_tokens_it_was_trained_on(name: str) -> None:
    task, tokenizer = find_task(name), build_tokenizer()
    rows = RowMaker(tokenizer, np.random.default_rng(0))
    for sample, problem in zip(task.load(limit=5), held_out(name, 5), strict=True):
        prompt = {"messages": task.messages(sample)}
        ids = encode_prompt(prompt, tokenizer, len(tokenizer), answer_prefix=task.answer_prefix)
        trained_prompt, trained_answer = rows.encode(problem)
        assert ids == trained_prompt.tolist()
        assert task.grade(sample, tokenizer.decode(trained_answer)).correct


@pytest.mark.parametrize("name", NAMES)
def test_verdicts_are_those_of_the_training_graders(name: str) -> None:
    task = find_task(name)
    [sample], [problem] = task.load(limit=1), held_out(name, 1)
    replies = [
        problem.answer,
        problem.answer + "\n",
        "",
        problem.answer[: len(problem.answer) // 2],
    ]
    verdicts = [task.grade(sample, reply).correct for reply in replies]
    assert verdicts == [True, True, False, False]
    assert verdicts == [TASKS[name].grade(problem, reply) for reply in replies]


def test_a_program_counts_by_what_it_does_not_how_it_is_written() -> None:
    task = find_task("tiny-mbpp")
    [sample] = task.load(limit=1)
    other = task.gold(sample).replace("xs", "numbers")
    assert task.grade(sample, other).correct
    broken = task.grade(sample, other.replace("return numbers", "return numbers + [1]"))
    assert not broken.correct and "AssertionError" in broken.detail


def test_there_is_no_file_to_read_and_a_limit_is_checked() -> None:
    with pytest.raises(UserError, match="makes its own problems"):
        find_task("tiny-gsm").load(Path("x.jsonl"))
    with pytest.raises(UserError, match="limit must be at least 1"):
        find_task("tiny-gsm").load(limit=0)
    assert len(find_task("tiny-math").load()) == 500
