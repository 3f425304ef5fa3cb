"""What models are asked, and what counts as their answer."""

import dataclasses

import pytest

from rho_eos.base.errors import UserError
from rho_eos.evals import find_task
from rho_eos.evals.graders.extraction import code_answer, math_answer, unboxed
from tests.evals.fixtures import TASKS, sample, samples


@pytest.mark.parametrize("task", TASKS)
def test_prompts_ask_for_reasoning_and_answer_in_tags(task: str) -> None:
    for item in samples(task):
        (message,) = find_task(task).messages(item)
        assert message["role"] == "user"
        for tag in ("<reasoning>", "</reasoning>", "<answer>", "</answer>"):
            assert tag in message["content"]
    assert find_task(task).answer_prefix == "<reasoning>"


def test_prompts_hold_the_whole_question() -> None:
    (message,) = find_task("gsm8k").messages(sample("gsm8k", "gsm8k/2"))
    assert "Oleg has $40 and buys 3 notebooks at $2.50 each." in message["content"]
    (message,) = find_task("math500").messages(samples("math500")[0])
    assert r"What is $\frac{3}{4} - \frac{1}{6}$?" in message["content"]
    assert r"\boxed{...}" in message["content"]
    (message,) = find_task("mbpp").messages(sample("mbpp", "mbpp/11"))
    assert "count the vowels of a word" in message["content"]
    assert "assert count_vowels('rhythm') == 0" in message["content"]
    (message,) = find_task("humaneval").messages(sample("humaneval", "Own/0"))
    assert "def longest(words: List[str]) -> int:" in message["content"]
    assert "implementation of the longest function" in message["content"]


def test_a_template_can_be_replaced() -> None:
    task = dataclasses.replace(find_task("gsm8k"), template="Pay $$5 for this: $question")
    (message,) = task.messages(samples("gsm8k")[0])
    assert message["content"].startswith("Pay $5 for this: Mira plants")


@pytest.mark.parametrize(
    ("template", "complaint"),
    [("Q: $quesion", r"asks for \$quesion, expected \$question"), ("Q: $ 5", "not valid")],
)
def test_a_wrong_template_is_a_clear_error(template: str, complaint: str) -> None:
    task = dataclasses.replace(find_task("gsm8k"), template=template)
    with pytest.raises(UserError, match=complaint):
        task.messages(samples("gsm8k")[0])


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
        (r"<answer>\boxed{7}", "7"),
        (r"whole \boxed{1}, then cut \boxed{2", "1"),
        (r"<answer></answer> \boxed{9}", "9"),
        ("", None),
        ("   ", None),
        ("the answer is 5", None),
        ("<answer>5", None),
        (r"\boxed{5", None),
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
    ("text", "plain"),
    [
        (r"so $\boxed{5}$.", "so $5$."),
        (r"\boxed{\frac{1}{2}} = \boxed{\boxed{0.5}}", r"\frac{1}{2} = 0.5"),
        (r"\boxed{5", r"\boxed{5"),
    ],
)
def test_boxes_can_be_taken_off(text: str, plain: str) -> None:
    assert unboxed(text) == plain


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("<answer>\n```python\ndef f(): pass\n```\n</answer>", "def f(): pass\n"),
        ("<answer>\n```\ndef f(): pass\n```\n</answer>", "def f(): pass\n"),
        ("<answer>\ndef f(): pass\n</answer>", "def f(): pass"),
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
