"""Reference answers are right; wrong, empty and cut-off ones are not."""

import dataclasses
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rho_eos.base.errors import UserError
from rho_eos.evals import Sample, find_task
from rho_eos.evals.graders import math_verifier
from rho_eos.evals.graders.math_verifier import MathVerifier
from rho_eos.evals.tasks.code_task import CodeTask
from rho_sandbox import Limits
from tests.evals.fixtures import BROKEN, TASKS, sample, samples
from tests.support import require_sandbox

ITEMS = [(task, item) for task in TASKS for item in samples(task)]
each_item = pytest.mark.parametrize(("task", "item"), ITEMS, ids=[item.id for _, item in ITEMS])


@pytest.fixture(autouse=True)
def sandbox_works() -> None:
    require_sandbox()


@each_item
def test_the_reference_answer_is_right_unless_it_is_known_to_be_broken(
    task: str, item: Sample
) -> None:
    grade = find_task(task).grade(item, find_task(task).gold(item))
    assert grade.correct == (item.id not in BROKEN), grade
    assert grade.extracted


@each_item
def test_no_part_of_the_reference_answer_is_right(task: str, item: Sample) -> None:
    gold = find_task(task).gold(item)
    last_mark = max(gold.rfind(mark) for mark in ("}", "```"))
    for end in {0, 1, len(gold) // 2, last_mark}:
        grade = find_task(task).grade(item, gold[:end])
        assert not grade.correct, gold[:end]
        assert grade.detail


@each_item
def test_the_answer_to_another_question_is_wrong(task: str, item: Sample) -> None:
    others = [other for other in samples(task) if other.id != item.id]
    for other in others[:2]:
        assert not find_task(task).grade(item, find_task(task).gold(other)).correct


@pytest.mark.parametrize(
    ("sample_id", "answer", "correct"),
    [
        ("gsm8k/0", "19", True),
        ("gsm8k/0", "19.0", True),
        ("gsm8k/0", "19 tulips", True),
        ("gsm8k/0", "The answer is 19", True),
        ("gsm8k/0", "20", False),
        ("gsm8k/0", "-19", False),
        ("gsm8k/0", "tulips", False),
        ("gsm8k/0", "...", False),
        ("gsm8k/1", "1250", True),
        ("gsm8k/1", "1,250", True),
        ("gsm8k/1", "1250 cars", True),
        ("gsm8k/1", "1", False),
        ("gsm8k/1", "250", False),
        ("gsm8k/2", r"\$32.50", True),
        ("gsm8k/2", "$32.5", True),
        ("gsm8k/2", "32", False),
        ("gsm8k/3", "-7", True),
        ("gsm8k/3", r"-7^\circ", True),
        ("gsm8k/3", "7", False),
    ],
)
@pytest.mark.parametrize("form", [r"<answer>\boxed{%s}</answer>", "<answer>%s</answer>", "#### %s"])
def test_numbers_are_compared_by_value(
    sample_id: str, answer: str, correct: bool, form: str
) -> None:
    grade = find_task("gsm8k").grade(sample("gsm8k", sample_id), form % answer)
    assert grade.correct == correct, grade
    assert grade.extracted == answer


@pytest.mark.parametrize(
    ("number", "answer", "correct"),
    [
        (1, r"\dfrac{14}{24}", True),
        (1, "7/12", True),
        (1, "0.58", False),
        (2, r"(2, 3\pi/2)", True),
        (2, r"\left(\frac{3\pi}{2}, 2\right)", False),
        (3, r"\left(-\sqrt5, \sqrt5\right)", True),
        (3, r"[-\sqrt{5}, \sqrt{5}]", False),
        (4, "Cleo", True),
        (4, "Anna", False),
        (5, r"\begin{bmatrix} 1 & 4 \\ 0 & 1 \end{bmatrix}", True),
        (5, r"\begin{pmatrix} 1 & 4 \\ 0 & 2 \end{pmatrix}", False),
        (6, "(x-3)(x+1)", True),
        (6, "(x-3)(x-1)", False),
        (7, "120", True),
        (7, "60", False),
    ],
)
def test_formulas_are_compared_by_meaning(number: int, answer: str, correct: bool) -> None:
    item = samples("math500")[number - 1]
    text = rf"</reasoning><answer>\boxed{{{answer}}}</answer>"
    assert find_task("math500").grade(item, text).correct == correct


@pytest.mark.parametrize(
    "answer", ["9^{9^{9^{9^{9}}}}", "9" * 200_000, "(" * 5000, r"\frac{" * 500, r"\int" * 300]
)
def test_an_answer_that_breaks_the_grader_is_wrong_and_the_next_one_is_graded(
    answer: str,
) -> None:
    item = sample("gsm8k", "gsm8k/0")
    assert not find_task("gsm8k").grade(item, rf"<answer>\boxed{{{answer}}}</answer>").correct
    assert find_task("gsm8k").grade(item, r"<answer>\boxed{19 + 0}</answer>").correct


def test_mathematics_is_graded_from_any_thread() -> None:
    task, items = find_task("gsm8k"), samples("gsm8k")

    def grade(item: Sample) -> bool:
        assert threading.current_thread() is not threading.main_thread()
        return task.grade(item, task.gold(item)).correct

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(grade, items * 3))


def test_a_verifier_that_is_killed_starts_again() -> None:
    verifier = MathVerifier()
    try:
        assert verifier.equal(r"\boxed{2}", r"\boxed{4/2}")
        assert verifier._process is not None
        verifier._process.kill()
        verifier._process.wait()
        assert verifier.equal(r"\boxed{2}", r"\boxed{6/3}"), "it has to be the first that is asked"
        assert not verifier.equal(r"\boxed{2}", r"\boxed{3}")
    finally:
        verifier.close()


def test_a_verifier_killed_at_work_does_not_make_the_answer_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verifier = MathVerifier()
    read = verifier._read
    killed: list[int] = []

    def kill_once(process: subprocess.Popen[str]) -> str:
        if verifier._known and not killed:
            killed.append(process.pid)
            process.kill()
            process.wait()
        return read(process)

    monkeypatch.setattr(verifier, "_read", kill_once)
    try:
        assert verifier.equal(r"\boxed{2}", r"\boxed{4/2}")
        assert verifier._process is not None
        verifier._process.send_signal(signal.SIGSTOP)  # or it may answer before it is killed
        assert verifier.equal(r"\boxed{3}", r"\boxed{6/2}") and killed
    finally:
        verifier.close()


def test_a_pair_that_always_kills_its_worker_is_unequal(monkeypatch: pytest.MonkeyPatch) -> None:
    verifier, started = MathVerifier(), []
    start = verifier._start

    def start_and_kill() -> subprocess.Popen[str]:
        process = start()
        started.append(process.pid)
        process.kill()
        process.wait()
        return process

    monkeypatch.setattr(verifier, "_start", start_and_kill)
    try:
        assert not verifier.equal(r"\boxed{2}", r"\boxed{4/2}")
        assert len(started) == math_verifier.ATTEMPTS
    finally:
        verifier.close()


def test_without_math_verify_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(math_verifier, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs math-verify: pip install 'rho-eos\[eval\]'"):
        MathVerifier().equal("1", "1")


def code(program: str) -> str:
    return f"I think.</reasoning>\n<answer>\n```python\n{program}\n```\n</answer>"


def code_task(name: str) -> CodeTask:
    task = find_task(name)
    assert isinstance(task, CodeTask)
    return task


@pytest.mark.parametrize(
    ("program", "correct", "detail"),
    [
        ("def count_vowels(w):\n    return len([c for c in w if c in 'aeiou'])", True, "all tests"),
        (
            "def count_vowels(w):\n    return 2",
            False,
            "in test: assert count_vowels('rhythm') == 0",
        ),
        ("def vowels(w):\n    return 2", False, "NameError: name 'count_vowels' is not defined"),
        ("def count_vowels(w:", False, "SyntaxError"),
        ("def count_vowels(w):\n    import os; os._exit(0)", False, "ended with status 0 before"),
        ("import sys; sys.exit(0)", False, "ended with status 0 before"),
        ("print('all tests passed')", False, "NameError"),
        ("raise SystemError('no')", False, "SystemError: no"),
        ("import os; os.abort()", False, "stopped by SIGABRT"),
    ],
)
def test_code_is_right_if_it_passes_the_tests(program: str, correct: bool, detail: str) -> None:
    grade = find_task("mbpp").grade(sample("mbpp", "mbpp/11"), code(program))
    assert grade.correct == correct
    assert detail in grade.detail
    assert grade.extracted == program + "\n"


def test_code_that_never_ends_is_stopped() -> None:
    task = dataclasses.replace(code_task("mbpp"), limits=Limits(cpu_seconds=1, wall_seconds=60))
    start = time.monotonic()
    grade = task.grade(sample("mbpp", "mbpp/11"), code("while True: pass"))
    assert not grade.correct and "stopped by" in grade.detail
    assert time.monotonic() - start < 120


def test_humaneval_takes_whole_functions_and_bodies_with_the_helpers_of_the_prompt() -> None:
    task, item = find_task("humaneval"), sample("humaneval", "Own/1")
    body = '    return "".join(chr((ord(c) - 98) % 26 + 97) for c in text)'
    assert task.grade(item, code(body)).correct
    assert task.grade(item, code(f"def unshift(text):\n{body}")).correct
    assert not task.grade(item, code("def unshift(text):\n    return text")).correct
    assert not task.grade(item, code("    return text")).correct
    assert not task.grade(item, code("def check(candidate): pass")).correct
