"""What models are asked, what counts as their answer, and graders by name."""

from typing import Any

import pytest

from rho_eos.base.errors import UserError
from rho_eos.evals import find_task
from rho_eos.evals.graders import make_grader, python_tests
from rho_eos.evals.graders.extraction import code_answer, math_answer
from rho_eos.evals.graders.grader import Grader
from rho_sandbox import Backend, NoSandboxError
from tests.evals.fixtures import sample
from tests.support import require_sandbox


@pytest.mark.parametrize(
    ("task", "sample_id", "parts"),
    [
        ("gsm8k", "gsm8k/2", ["Oleg has $40 and buys 3 notebooks at $2.50 each."]),
        (
            "math500",
            "math500/own/prealgebra/1.json",
            [r"What is $\frac{3}{4} - \frac{1}{6}$?", r"\boxed{...}"],
        ),
        ("mbpp", "mbpp/11", ["the vowels of a word", "assert count_vowels('rhythm') == 0"]),
        ("humaneval", "Own/0", ["def longest(words: List[str]) -> int:", "the longest function"]),
    ],
)
def test_prompts_hold_the_whole_question_and_ask_for_an_answer_in_tags(
    task: str, sample_id: str, parts: list[str]
) -> None:
    (message,) = find_task(task).messages(sample(task, sample_id))
    assert message["role"] == "user" and find_task(task).answer_prefix == "<reasoning>"
    for part in (*parts, "<reasoning>", "</reasoning>", "<answer>", "</answer>"):
        assert part in message["content"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so 5</reasoning><answer>\boxed{5}</answer>", "5"),
        (r"<answer>\boxed{\frac{1}{2}}</answer>", r"\frac{1}{2}"),
        (r"<answer>\boxed{\{1, 2\}}</answer>", r"\{1, 2\}"),
        (r"first \boxed{1}, then \boxed{2}", "2"),
        (r"<answer>\boxed{3}</answer> but \boxed{4}", "3"),
        (r"<answer>1</answer> no, <answer>2</answer>", "2"),
        ("<answer> 18 dollars\n</answer>", "18 dollars"),
        ("12 + 6 = 18\n#### 18\n", "18"),
        (r"done: \boxed {7}", "7"),
        (r"whole \boxed{1}, then cut \boxed{2", "1"),
        (r"<answer></answer> \boxed{9}", "9"),
        ("", None),
        ("the answer is 5", None),
        ("<answer>5", None),
        (r"\boxed{}", None),
        (r"\boxed{\frac{1}{2}", None),
        ("####", None),
        ("</answer>5<answer>", None),
    ],
)
def test_where_a_mathematical_answer_is_found(text: str, answer: str | None) -> None:
    assert math_answer(text) == answer
    assert math_answer(f"<reasoning>{text}") == answer


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("<answer>\n```python\ndef f(): pass\n```\n</answer>", "def f(): pass\n"),
        ("<answer>\n    return 1\n</answer>", "    return 1"),
        ("```python\na = 1\n```\nbetter:\n```python\na = 2\n```", "a = 2\n"),
        ("```py\na = 1\n```\n<answer>```python\na = 2\n```</answer>", "a = 2\n"),
        ("<answer>```python\na = '```'\n```\n</answer>", "a = '```'\n"),
        ("<answer>\n```python\na = 1\n```\n", "a = 1\n"),
        ("", None),
        ("def f(): pass", None),
        ("<answer>\n```python\ndef f(): pa", None),
        ("<answer>\n```python\ndef f(): pass\n</answer>", None),
        ("<answer>\n</answer>", None),
    ],
)
def test_where_code_is_found(text: str, code: str | None) -> None:
    assert code_answer(text) == code


FIELDS = {"tests": "assert double(4) == 8", "head": "import math"}
CODE = "def double(x):\n    return {}"
FENCED = "```python\n" + CODE + "\n```"
BOXED = {"name": "regex", "pattern": r"\[(\w+)\]"}
PLAIN = {"name": "python", "whole_text": True}
HEADED = {"name": "python", "before": "head"}

#: A grader, a text, a reference, and whether the text is right; None: there is no answer in it.
CASES = [
    ("exact", " blue\n", "blue", True),
    ({"name": "exact", "ignore_case": True}, "BLUE", "blue", True),
    ("exact", "Blue", "blue", False),
    ("exact", "blue it is", "blue", False),
    ("exact", " \n", "blue", None),
    ("number", "#### 11 or rather #### 12.0", "12", True),
    ("number", "#### $1,250 in all.", "1250", True),
    ("number", "#### -3.", "so it sinks\n#### -3", True),
    ({"name": "number", "marker": "Answer:"}, "Answer: 7", "7", True),
    ("number", "#### 12 #### 11", "12", False),
    ("number", "it is 12", "12", None),
    ("number", "####", "12", None),
    ("number", "#### 12/5", "12", None),
    ("number", "#### 12abc", "12", None),
    (BOXED, "first [red], then [blue]", "blue", True),
    (BOXED | {"ignore_case": True}, "[Blue]", "blue", True),
    ({"name": "regex", "pattern": "yes|no"}, "I say yes", "yes", True),
    (BOXED, "[blue], or rather [red]", "blue", False),
    (BOXED, "blue", "blue", None),
    ({"name": "regex", "pattern": "x(a)?"}, "x", "a", None),
    ("math", r"so \boxed{\frac{2}{4}}", "1/2", True),
    ("math", "<answer>18 dollars</answer>", "18", True),
    ("math", r"\boxed{1/3}", "1/2", False),
    ("math", r"\boxed{1/2", "1/2", None),
    ("python", FENCED.format("2 * x"), "", True),
    (PLAIN, CODE.format("x + x"), "", True),
    (HEADED, FENCED.format("int(math.fsum([x, x]))"), "", True),
    ("python", FENCED.format("x * x"), "", False),
    ("python", "```python\nraise SystemExit(0)\n```", "", False),
    ("python", FENCED.format("math.fsum([x, x])"), "", False),
    ("python", CODE.format("2 * x"), "", None),
    (PLAIN, "", "", None),
]


def usable(grader: Any) -> Grader:
    """The grader; the test skips if it runs code and no sandbox works here."""
    made = make_grader(grader)
    if made.runs_code:
        require_sandbox()
    return made


@pytest.mark.parametrize(("grader", "text", "reference", "right"), CASES)
def test_answers_are_right_wrong_or_absent(
    grader: Any, text: str, reference: str, right: bool | None
) -> None:
    grade = usable(grader).grade(text, reference, FIELDS)
    assert grade.correct == bool(right) and grade.detail, grade
    assert (grade.extracted is None) == (right is None)


def test_code_runs_in_the_sandbox_it_is_confined_to(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, run_python = [], python_tests.run_python

    def note(*arguments: Any, **options: Any) -> Any:
        used.append(options["backend"])
        return run_python(*arguments, **options)

    monkeypatch.setattr(python_tests, "run_python", note)
    with python_tests.running_in(backend):
        assert make_grader("python").grade(FENCED.format("2 * x"), "", FIELDS).correct
    assert used == [backend]


def test_without_a_sandbox_the_user_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise NoSandboxError("no sandbox works here: unshare failed")

    monkeypatch.setattr(python_tests, "run_python", refuse)
    monkeypatch.setattr(python_tests, "probe_backend", refuse)
    with pytest.raises(UserError, match=r"unshare failed.*--unsafe-code"):
        make_grader("python").grade(FENCED.format("2 * x"), "", FIELDS)
    with pytest.raises(UserError, match=r"unshare failed.*--unsafe-code"):
        python_tests.find_sandbox(unsafe=False)


@pytest.mark.parametrize(
    ("grader", "complaint"),
    [
        (None, "grader is None"),
        ({"marker": "x"}, "grader is None"),
        ({"name": ["exact"]}, "but takes one of exact"),
        ({"name": "exact", "marker": "x"}, "grader exact: unknown parameter 'marker'"),
        ({"name": "number", "marker": 5}, "marker is 5"),
        ({"name": "number", "marker": ""}, "marker is ''"),
        ({"name": "regex"}, "grader regex: pattern is missing"),
        ({"name": "regex", "pattern": "("}, "pattern is '('"),
        ({"name": "regex", "pattern": "(a)(b)"}, "with at most one group"),
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
        ("python", "", {"tests": "\n"}, "the field 'tests' holds no tests"),
        (HEADED, "", {"tests": "assert 1"}, "no field 'head'"),
    ],
)
def test_a_reference_that_cannot_judge_is_refused(
    grader: Any, reference: str, fields: dict[str, str], complaint: str
) -> None:
    with pytest.raises(UserError, match=complaint):
        make_grader(grader).check(reference, fields)
