"""The tiny tasks: answers are true, the split holds, and lengths make length matter."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rho_eos.base.errors import UserError
from rho_eos.embedded.problem import split_of
from rho_eos.embedded.tasks import TASKS, held_out
from rho_eos.embedded.tokenizer import build_tokenizer
from training.rows import facts

DRILLED = set(facts())
names = st.sampled_from(sorted(TASKS))
seeds = st.integers(0, 10**9)


@given(names, seeds)
def test_a_seed_always_gives_the_same_problem(name: str, seed: int) -> None:
    assert TASKS[name].problem(seed) == TASKS[name].problem(seed)


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_python_agrees_with_the_arithmetic(seed: int) -> None:
    """The oracle is Python's own reading of the expression, with its own precedence."""
    problem = TASKS["tiny-math"].problem(seed)
    _, *lines = problem.prompt.replace("×", "*").splitlines()
    value = eval(" ".join(line.partition(") ")[2] for line in lines))
    assert problem.answer.endswith(f"#### {value}")


@given(st.sampled_from(["tiny-gsm", "tiny-math"]), seeds)
def test_every_equation_of_an_answer_is_true_and_is_drilled(name: str, seed: int) -> None:
    problem = TASKS[name].problem(seed)
    equations = re.findall(r"(\d+) ([-+*]) (\d+) = (\d+)", problem.answer)
    assert len(equations) >= problem.meta["steps"] - 1
    for left, sign, right, result in equations:
        value = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}[sign](int(left), int(right))
        assert value == int(result)
        assert (int(left), sign, int(right), value) in DRILLED


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(["tiny-mbpp", "tiny-humaneval"]), seeds)
def test_the_gold_program_does_what_the_problem_expects(name: str, seed: int) -> None:
    """Run here, in this process: the code is our generator's own."""
    problem = TASKS[name].problem(seed)
    namespace: dict[str, object] = {}
    exec(problem.meta["before"] + problem.answer, namespace)
    function = namespace[problem.meta["function"]]
    results = [function(value) for value in problem.meta["inputs"]]  # type: ignore[operator]
    assert results == problem.meta["expected"]


@given(st.sampled_from(["tiny-gsm", "tiny-math"]), seeds)
def test_a_number_is_also_answered_by_its_equations_alone_and_alone(name: str, seed: int) -> None:
    """Each equation goes on with the result of the one before, and all are true."""
    problem = TASKS[name].problem(seed)
    result = problem.answer.splitlines()[-1]
    brief, bare = problem.shorter
    *lines, last = brief.splitlines()
    assert bare == last == result
    assert len(lines) == problem.meta["steps"]
    carried = None
    for line in lines:
        left, _, right = line.partition(" = ")
        assert eval(left) == int(right)
        assert carried in (None, left.split()[0])
        carried = right
    assert result == f"#### {carried}"


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(["tiny-mbpp", "tiny-humaneval"]), seeds)
def test_a_program_is_also_written_without_comments_and_with_fewer_steps(
    name: str, seed: int
) -> None:
    """Run here, in this process: the code is our generator's own."""
    problem = TASKS[name].problem(seed)
    brief, *less = problem.shorter
    assert brief == re.sub(r"    #.*\n", "", problem.answer)
    assert len(less) == problem.meta["steps"]
    assert [len(text) for text in problem.shorter] == sorted(map(len, problem.shorter))[::-1]
    given = problem.meta["inputs"]
    for text, expected in ((brief, problem.meta["expected"]), (less[-1], given)):
        namespace: dict[str, object] = {}
        exec(problem.meta["before"] + text, namespace)
        function = namespace[problem.meta["function"]]
        assert [function(value) for value in given] == expected  # type: ignore[operator]
    for text in less:
        compile(problem.meta["before"] + text, name, "exec")


def test_no_held_out_answer_can_occur_in_training() -> None:
    for name, task in TASKS.items():
        assert all(split_of(name, problem.answer) == "test" for problem in held_out(name, 50))
        for seed in range(50):
            assert split_of(name, task.problem(seed, split="train").answer) == "train"


def test_lengths_spread_from_a_handful_of_tokens_to_a_few_hundred() -> None:
    tokenizer = build_tokenizer()
    for name in TASKS:
        lengths = sorted(len(tokenizer.encode(p.answer)) for p in held_out(name, 200))
        assert lengths[0] <= 32
        assert 240 < lengths[-1] <= 320
        assert 0.02 < sum(length > 256 for length in lengths) / 200 < 0.25
        assert sum(length <= 16 for length in lengths) / 200 < 0.25
        assert 90 < sum(lengths) / 200 < 150


def test_harder_problems_have_longer_answers() -> None:
    for task in TASKS.values():
        short, long = task.problem(1, difficulty=2), task.problem(1, difficulty=task.max_steps)
        assert len(long.answer) > 2 * len(short.answer)
        with pytest.raises(UserError, match="difficulty"):
            task.problem(1, difficulty=task.max_steps + 1)


def test_plain_problems_differ_in_content_but_not_in_wording() -> None:
    task = TASKS["tiny-gsm"]
    prompts = [task.problem(seed, 2, plain=True).prompt for seed in range(20)]
    assert len({re.sub(r"\d+", "n", prompt) for prompt in prompts}) < 20
    assert len(set(prompts)) > 10


def test_an_unknown_task_is_named_in_the_error() -> None:
    with pytest.raises(UserError, match="tiny-poems"):
        held_out("tiny-poems", 1)


def test_the_problems_are_those_that_the_models_were_trained_and_measured_on() -> None:
    digest = sha256()
    for name, task in TASKS.items():
        shown = [task.problem(seed, split="train", plain=seed % 2 == 0) for seed in range(50)]
        digest.update(repr([*held_out(name, 200), *shown]).encode())
    assert digest.hexdigest() == (
        "7cc2a07a5c18d63ec639bc0fa0e4183ba09946bc8f723d7e4183c749388ec8ba"
    )
