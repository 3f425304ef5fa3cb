"""Reference answers are right; wrong, empty and cut-off ones are not."""

import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from rho_eos.base.errors import UserError
from rho_eos.evals import Sample, find_task
from rho_eos.evals.graders import make_grader, math_verifier
from rho_eos.evals.graders.math_verifier import MathVerifier
from rho_sandbox import Limits
from tests.evals.fixtures import BROKEN, TASKS, sample, samples
from tests.support import require_sandbox

ITEMS = [(task, item) for task in TASKS for item in samples(task)]


@pytest.fixture(autouse=True)
def sandbox_works() -> None:
    require_sandbox()


@pytest.fixture
def verifier() -> Iterator[MathVerifier]:
    verifier = MathVerifier()
    yield verifier
    verifier.close()


@pytest.mark.parametrize(("task", "item"), ITEMS, ids=[item.id for _, item in ITEMS])
def test_the_reference_is_right_but_no_part_of_it_nor_that_of_another(
    task: str, item: Sample
) -> None:
    benchmark = find_task(task)
    gold = benchmark.gold(item)
    grade = benchmark.grade(item, gold)
    assert grade.correct == (item.id not in BROKEN) and grade.extracted, grade
    last_mark = max(gold.rfind(mark) for mark in ("}", "```"))
    for end in {0, 1, len(gold) // 2, last_mark}:
        grade = benchmark.grade(item, gold[:end])
        assert not grade.correct and grade.detail, gold[:end]
    other = next(other for other in samples(task) if other.id != item.id)
    assert not benchmark.grade(item, benchmark.gold(other)).correct


@pytest.mark.parametrize(
    ("sample_id", "answer", "correct"),
    [
        ("gsm8k/0", "19.0", True),
        ("gsm8k/0", "19 tulips", True),
        ("gsm8k/0", "The answer is 19", True),
        ("gsm8k/0", "20", False),
        ("gsm8k/0", "-19", False),
        ("gsm8k/0", "tulips", False),
        ("gsm8k/0", "...", False),
        ("gsm8k/1", "1,250", True),
        ("gsm8k/1", "1250 cars", True),
        ("gsm8k/1", "250", False),
        ("gsm8k/2", r"\$32.50", True),
        ("gsm8k/2", "$32.5", True),
        ("gsm8k/2", "32", False),
        ("gsm8k/3", r"-7^\circ", True),
        ("gsm8k/3", "7", False),
    ],
)
@pytest.mark.parametrize("form", [r"<answer>\boxed{%s}</answer>", "<answer>%s</answer>", "#### %s"])
def test_numbers_are_compared_by_value(
    sample_id: str, answer: str, correct: bool, form: str
) -> None:
    grade = find_task("gsm8k").grade(sample("gsm8k", sample_id), form % answer)
    assert grade.correct == correct and grade.extracted == answer, grade


@pytest.mark.parametrize(
    ("number", "right", "wrong"),
    [
        (1, "7/12", "0.58"),
        (2, r"(2, 3\pi/2)", r"\left(\frac{3\pi}{2}, 2\right)"),
        (3, r"\left(-\sqrt5, \sqrt5\right)", r"[-\sqrt{5}, \sqrt{5}]"),
        (4, "Cleo", "Anna"),
        (
            5,
            r"\begin{bmatrix} 1 & 4 \\ 0 & 1 \end{bmatrix}",
            r"\begin{pmatrix} 1 & 4 \\ 0 & 2 \end{pmatrix}",
        ),
        (6, "(x-3)(x+1)", "(x-3)(x-1)"),
        (7, "120", "60"),
    ],
)
def test_formulas_are_compared_by_meaning(number: int, right: str, wrong: str) -> None:
    item = samples("math500")[number - 1]
    for answer in (right, wrong):
        text = rf"</reasoning><answer>\boxed{{{answer}}}</answer>"
        assert find_task("math500").grade(item, text).correct == (answer == right)


@pytest.mark.parametrize(
    "answer", ["9^{9^{9^{9^{9}}}}", "9" * 200_000, "(" * 5000, r"\frac{" * 500, r"\int" * 300]
)
def test_an_answer_that_breaks_the_grader_is_wrong_and_the_next_one_is_graded(
    answer: str,
) -> None:
    item = sample("gsm8k", "gsm8k/0")
    assert not find_task("gsm8k").grade(item, rf"<answer>\boxed{{{answer}}}</answer>").correct
    assert find_task("gsm8k").grade(item, r"<answer>\boxed{19 + 0}</answer>").correct


#: What leaves the choice, by a right and a wrong value.
HEDGES = [
    *(
        "{wrong} or {right}",
        "{right} or {wrong}",
        "either {wrong} or {right}",
        "{wrong} (or {right})",
    ),
    *("{wrong} dollars or {right} dollars", "{wrong} dollars, or rather {right} dollars"),
    *(
        "x = {wrong} or x = {right}",
        "{wrong} and {right}",
        "${wrong}$ or ${right}$",
        "{wrong} vs {right}",
    ),
    *(r"{wrong} \lor {right}", r"{wrong}\text{{ or }}{right}", r"{wrong} \vee {right}"),
    *(
        r"\boxed{{{wrong}}} or \boxed{{{right}}}",
        r"\boxed{{{wrong}}}$ \text{{ or }} $\boxed{{{right}}}",
    ),
    *("not {right}", "not {wrong} but {right}", "{right} or not", "{wrong} or {wrong} or {right}"),
]


@pytest.mark.parametrize("hedge", HEDGES)
@pytest.mark.parametrize("form", [r"<answer>\boxed{%s}</answer>", "<answer>%s</answer>", "#### %s"])
def test_an_answer_that_hedges_is_wrong(hedge: str, form: str) -> None:
    grader = make_grader("math")
    for right, wrong in (("5", "6"), ("1,250", "7"), (r"\frac{1}{2}", r"\frac{1}{3}")):
        text = form % hedge.format(right=right, wrong=wrong)
        assert not grader.grade(text, right).correct, text


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("5 or 5.0", "5"),
        ("18 dollars and that is all", "18"),
        ("The sum of 6 and 12 is 18", "18"),
        ("6 + 12 = 18", "18"),
        ("3 or more", "3"),
        ("notably 18", "18"),
        (r"\frac12 \text{ or } 0.5", r"\frac{1}{2}"),
        (r"x = 1 \text{ or } x = 2", r"x = 1 \text{ or } x = 2"),
        ("1 and 2", "1,2"),
        (r"\text{not possible}", r"\text{not possible}"),
    ],
)
def test_an_answer_that_only_says_it_twice_is_as_right_as_before(
    answer: str, reference: str
) -> None:
    grade = make_grader("math").grade(f"<answer>{answer}</answer>", reference)
    assert grade.correct, grade


def workers() -> set[psutil.Process]:
    """The processes that compare mathematics for this one."""
    children = psutil.Process().children()
    return {each for each in children if any("math_worker" in word for word in each.cmdline())}


def test_a_worker_killed_before_or_at_work_does_not_make_the_answer_wrong(
    verifier: MathVerifier,
) -> None:
    before = workers()
    assert verifier.equal(r"\boxed{2}", r"\boxed{4/2}")
    [worker] = workers() - before
    worker.kill()
    worker.wait()
    assert verifier.equal(r"\boxed{2}", r"\boxed{6/3}"), "it has to be the first that is asked"
    [worker] = workers() - before
    worker.suspend()  # or it may answer before it is killed
    killer = threading.Timer(0.5, worker.kill)
    killer.start()
    assert verifier.equal(r"\boxed{3}", r"\boxed{6/2}")
    assert not verifier.equal(r"\boxed{2}", r"\boxed{3}")


def test_without_math_verify_the_error_says_what_to_install(
    verifier: MathVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(math_verifier, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs math-verify: pip install 'rho-eos\[eval\]'"):
        verifier.equal("1", "1")


def code(program: str) -> str:
    return f"I think.</reasoning>\n<answer>\n```python\n{program}\n```\n</answer>"


@pytest.mark.parametrize(
    ("program", "detail"),
    [
        ("def count_vowels(w):\n    return len([c for c in w if c in 'aeiou'])", "all tests"),
        ("def count_vowels(w):\n    return 2", "in test: assert count_vowels('rhythm') == 0"),
        ("def count_vowels(w:", "SyntaxError"),
        ("def count_vowels(w):\n    import os; os._exit(0)", "ended with status 0 before"),
        ("print('all tests passed')", "NameError: name 'count_vowels' is not defined"),
        ("import os; os.abort()", "stopped by SIGABRT"),
    ],
)
def test_code_is_right_if_it_passes_the_tests(program: str, detail: str) -> None:
    grade = find_task("mbpp").grade(sample("mbpp", "mbpp/11"), code(program))
    assert grade.correct == (detail == "all tests")
    assert detail in grade.detail
    assert grade.extracted == program + "\n"


def test_code_that_never_ends_is_stopped() -> None:
    task: Any = find_task("mbpp")
    limited = dataclasses.replace(task, limits=Limits(cpu_seconds=1, wall_seconds=60))
    grade = limited.grade(sample("mbpp", "mbpp/11"), code("while True: pass"))
    assert not grade.correct and "stopped by" in grade.detail


def test_humaneval_takes_whole_functions_and_bodies_with_the_helpers_of_the_prompt() -> None:
    task, item = find_task("humaneval"), sample("humaneval", "Own/1")
    body = '    return "".join(chr((ord(c) - 98) % 26 + 97) for c in text)'
    assert task.grade(item, code(body)).correct
    assert task.grade(item, code(f"def unshift(text):\n{body}")).correct
    assert not task.grade(item, code("def unshift(text):\n    return text")).correct
    assert not task.grade(item, code("    return text")).correct
    assert not task.grade(item, code("def check(candidate): pass")).correct
