"""Graders by name, as task files use them: right, wrong and absent answers, and bad options."""

from typing import Any

import pytest

from rho_eos.base.errors import UserError
from rho_eos.evals.graders import GRADERS, make_grader
from rho_eos.evals.graders.grader import Grader
from rho_sandbox import Backend, NoSandboxError
from tests.support import require_sandbox

FIELDS = {"tests": "assert double(4) == 8", "head": "import math"}
CODE = "def double(x):\n    return {}"
FENCED = "```python\n" + CODE + "\n```"
BOXED = {"name": "regex", "pattern": r"\[(\w+)\]"}
PLAIN = {"name": "python", "whole_text": True}
HEADED = {"name": "python", "before": "head"}

RIGHT = [
    ("exact", " blue\n", "blue"),
    ({"name": "exact", "ignore_case": True}, "BLUE", "blue"),
    ("number", "6 + 6 = 12\n#### 12", "12"),
    ("number", "#### 11 or rather #### 12.0", "12"),
    ("number", "#### $1,250 in all.", "1250"),
    ("number", "#### -3.", "so it sinks\n#### -3"),
    ({"name": "number", "marker": "Answer:"}, "Answer: 7", "7"),
    (BOXED, "first [red], then [blue]", "blue"),
    (BOXED | {"ignore_case": True}, "[Blue]", "blue"),
    ({"name": "regex", "pattern": "yes|no"}, "I say yes", "yes"),
    ("math", r"so \boxed{\frac{2}{4}}", "1/2"),
    ("math", "<answer>18 dollars</answer>", "18"),
    ("python", FENCED.format("2 * x"), ""),
    (PLAIN, CODE.format("x + x"), ""),
    (HEADED, FENCED.format("int(math.fsum([x, x]))"), ""),
]
WRONG = [
    ("exact", "Blue", "blue"),
    ("exact", "blue it is", "blue"),
    ("number", "#### 13", "12"),
    ("number", "#### 12 #### 11", "12"),
    (BOXED, "[blue], or rather [red]", "blue"),
    ("math", r"\boxed{1/3}", "1/2"),
    ("python", FENCED.format("x * x"), ""),
    ("python", "```python\nraise SystemExit(0)\n```", ""),
    (PLAIN, CODE.format("x"), ""),
    ("python", FENCED.format("math.fsum([x, x])"), ""),
]
ABSENT = [
    ("exact", " \n", "blue"),
    ("number", "it is 12", "12"),
    ("number", "####", "12"),
    ("number", "#### twelve", "12"),
    ("number", "#### 12/5", "12"),
    ("number", "#### 12abc", "12"),
    (BOXED, "blue", "blue"),
    ({"name": "regex", "pattern": "x(a)?"}, "x", "a"),
    ("math", r"\boxed{1/2", "1/2"),
    ("python", CODE.format("2 * x"), ""),
    ("python", "```python\ndef double(x):", ""),
    (PLAIN, "", ""),
]


def name_of(grader: Any) -> str:
    return grader if isinstance(grader, str) else grader["name"]


def usable(grader: Any) -> Grader:
    """The grader; the test skips if it runs code and no sandbox works here."""
    made = make_grader(grader)
    if made.runs_code:
        require_sandbox()
    return made


def test_every_grader_is_tried_in_every_way() -> None:
    for cases in (RIGHT, WRONG, ABSENT):
        assert {name_of(grader) for grader, _, _ in cases} == set(GRADERS)


@pytest.mark.parametrize(("grader", "text", "reference"), RIGHT)
def test_right_answers(grader: Any, text: str, reference: str) -> None:
    grade = usable(grader).grade(text, reference, FIELDS)
    assert grade.correct, grade
    assert grade.extracted


@pytest.mark.parametrize(("grader", "text", "reference"), WRONG)
def test_wrong_answers(grader: Any, text: str, reference: str) -> None:
    grade = usable(grader).grade(text, reference, FIELDS)
    assert not grade.correct
    assert grade.extracted and grade.detail


@pytest.mark.parametrize(("grader", "text", "reference"), ABSENT)
def test_absent_answers(grader: Any, text: str, reference: str) -> None:
    grade = make_grader(grader).grade(text, reference, FIELDS)
    assert not grade.correct and grade.extracted is None
    assert grade.detail.startswith("no ")


@pytest.mark.parametrize(
    ("grader", "reference"),
    [
        ("exact", "blue"),
        ("number", "12"),
        ("number", "7 + 5\n#### 12"),
        ({"name": "regex", "pattern": r"\w+"}, "blue"),
        ("math", r"\frac{1}{2}"),
        ("python", CODE.format("2 * x")),
        (PLAIN, CODE.format("2 * x")),
    ],
)
def test_the_reference_itself_is_right(grader: Any, reference: str) -> None:
    made = usable(grader)
    made.check(reference, FIELDS)
    assert made.grade(made.gold(reference), reference, FIELDS).correct


def test_code_runs_in_the_sandbox_it_is_confined_to(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Any] = []

    def note(*arguments: Any, **options: Any) -> Any:
        used.append(options["backend"])
        return run_python(*arguments, **options)

    from rho_eos.evals.graders import python_tests

    run_python = python_tests.run_python
    monkeypatch.setattr(python_tests, "run_python", note)
    with python_tests.running_in(backend):
        assert make_grader("python").grade(FENCED.format("2 * x"), "", FIELDS).correct
    assert used == [backend] and python_tests._chosen is None


def test_without_a_sandbox_the_user_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise NoSandboxError("no sandbox works here: unshare failed")

    from rho_eos.evals.graders import python_tests

    monkeypatch.setattr(python_tests, "run_python", refuse)
    monkeypatch.setattr(python_tests, "probe_backend", refuse)
    with pytest.raises(UserError, match=r"unshare failed.*--unsafe-code"):
        make_grader("python").grade(FENCED.format("2 * x"), "", FIELDS)
    with pytest.raises(UserError, match=r"unshare failed.*--unsafe-code"):
        python_tests.find_sandbox(unsafe=False)


@pytest.mark.parametrize(
    ("grader", "complaint"),
    [
        ("exakt", "grader is 'exakt', but takes one of exact, number, regex, math, python"),
        (None, "grader is None, but takes one of exact"),
        ({"marker": "x"}, "grader is None, but takes one of exact"),
        ({"name": ["exact"]}, "but takes one of exact"),
        (
            {"name": "exact", "marker": "x"},
            "grader exact: unknown parameter 'marker'; known are ignore",
        ),
        (
            {"name": "math", "marker": "x"},
            "grader math: unknown parameter 'marker'; known are none",
        ),
        ({"name": "number", "marker": 5}, "marker is 5, but takes a non-empty text"),
        ({"name": "number", "marker": ""}, "marker is '', but takes a non-empty text"),
        ({"name": "regex"}, "grader regex: pattern is missing"),
        ({"name": "regex", "pattern": "("}, "pattern is '(', but takes a regular expression: miss"),
        ({"name": "regex", "pattern": "(a)(b)"}, "with at most one group"),
        ({"name": "python", "backend": "unsafe"}, "unknown parameter 'backend'"),
    ],
)
def test_bad_options_are_one_sentence(grader: Any, complaint: str) -> None:
    with pytest.raises(UserError) as refused:
        make_grader(grader)
    assert complaint in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("grader", "reference", "fields", "complaint"),
    [
        ("exact", " ", {}, "the reference is empty"),
        ("number", "twelve", {}, "the reference 'twelve' holds no number"),
        ("python", "", {}, "no field 'tests', which the grader python reads"),
        ("python", "", {"tests": "\n"}, "the field 'tests' holds no tests"),
        (HEADED, "", {"tests": "assert 1"}, "no field 'head'"),
    ],
)
def test_a_reference_that_cannot_judge_is_refused(
    grader: Any, reference: str, fields: dict[str, str], complaint: str
) -> None:
    with pytest.raises(UserError, match=complaint):
        make_grader(grader).check(reference, fields)
