"""The tiny tasks and their tokenizer: answers are true, the split holds, any text comes back."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from rho_eos.models.known import EMBEDDED
from rho_problems import TASKS, held_out
from rho_problems.problem import split_of
from rho_problems.tokenizer import build_tokenizer
from training.rows import facts

DRILLED = set(facts())
seeds = st.integers(0, 10**9)


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
def test_a_program_does_what_is_asked_also_without_comments_and_less_with_fewer_steps(
    name: str, seed: int
) -> None:
    """The code is our generator's own, so it is run in this process."""
    problem = TASKS[name].problem(seed)
    brief, *less = problem.shorter
    assert brief == re.sub(r"    #.*\n", "", problem.answer)
    assert len(less) == problem.meta["steps"]
    assert [len(text) for text in problem.shorter] == sorted(map(len, problem.shorter))[::-1]
    given = problem.meta["inputs"]
    asked = problem.meta["expected"]
    for text, expected in ((problem.answer, asked), (brief, asked), (less[-1], given)):
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


def test_the_problems_are_those_that_the_models_were_trained_and_measured_on() -> None:
    digest = sha256()
    for name, task in TASKS.items():
        shown = [task.problem(seed, split="train", plain=seed % 2 == 0) for seed in range(50)]
        digest.update(repr([*held_out(name, 200), *shown]).encode())
    assert digest.hexdigest() == (
        "7cc2a07a5c18d63ec639bc0fa0e4183ba09946bc8f723d7e4183c749388ec8ba"
    )


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer()


@given(st.text())
def test_any_text_round_trips(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_the_chat_template_is_llada_s(tokenizer: PreTrainedTokenizerFast) -> None:
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, tokenize=False
    )
    assert text == (
        "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_the_shipped_tokenizer_is_the_one_the_code_builds(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    text = "Zorblat has 12 apples.\n    if x % 2 == 0:  # ünïcode ×"
    for folder in EMBEDDED.values():
        shipped = AutoTokenizer.from_pretrained(folder)
        assert shipped.get_vocab() == tokenizer.get_vocab()
        assert shipped.encode(text) == tokenizer.encode(text)
        assert shipped.mask_token_id == tokenizer.mask_token_id
        assert shipped.chat_template == tokenizer.chat_template
