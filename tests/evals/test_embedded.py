"""The embedded model's tasks as benchmarks: asked as it was trained, graded by what counts."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rho_eos.base.errors import UserError
from rho_eos.embedded.tasks import TASKS, held_out
from rho_eos.embedded.tokenizer import build_tokenizer
from rho_eos.evals import find_task, task_names
from rho_eos.evals.tasks.embedded import sample_of
from rho_eos.text.prompts import encode_prompt
from tests.support import require_sandbox
from training.rows import RowMaker

NAMES = ("tiny-gsm", "tiny-math", "tiny-mbpp", "tiny-humaneval")
names = st.sampled_from(NAMES)


def right(name: str, seed: int, text: str, difficulty: int | None = None) -> bool:
    problem = TASKS[name].problem(seed, difficulty)
    return find_task(name).grade(sample_of(problem), text).correct


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


@given(names, st.integers(0, 10**9))
def test_the_gold_answer_is_right(name: str, seed: int) -> None:
    answer = TASKS[name].problem(seed).answer
    assert right(name, seed, answer)
    assert right(name, seed, answer + "\n")


@settings(max_examples=8, deadline=None)
@given(names, st.integers(0, 10**6))
def test_empty_and_cut_off_answers_are_wrong(name: str, seed: int) -> None:
    require_sandbox()
    answer = TASKS[name].problem(seed).answer
    assert not right(name, seed, "")
    assert not right(name, seed, answer[: len(answer) // 2])


def test_another_program_that_does_the_same_is_right() -> None:
    require_sandbox()
    answer = TASKS["tiny-mbpp"].problem(3, difficulty=2).answer
    uncommented = re.sub(r"    #.*\n", "", answer)
    assert uncommented != answer
    assert right("tiny-mbpp", 3, uncommented, difficulty=2)
    assert not right("tiny-mbpp", 3, "def f(xs):\n    return xs[:0]", difficulty=2)


def test_a_wrong_number_is_wrong() -> None:
    number = int(TASKS["tiny-gsm"].problem(3).answer.rpartition("#### ")[2])
    assert right("tiny-gsm", 3, f"Somehow.\n#### {number}")
    assert not right("tiny-gsm", 3, f"#### {number + 1}")
    assert not right("tiny-gsm", 3, f"{number}")


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
