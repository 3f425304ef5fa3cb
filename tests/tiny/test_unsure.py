"""How `unsure` is trained: three right answers, drawn whatever the problem and the canvas are."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

from rho_problems import TASKS
from rho_problems.problem import Problem
from rho_problems.tokenizer import build_tokenizer
from training.curriculum import ProblemStream
from training.forms import FORMS, forms
from training.model import FULL
from training.rows import LONGEST_CANVAS, NO_TARGET, Kind, Row, RowMaker
from training.shares import form_of, quantile
from training.unsure import Unsure

NUMBERS, PROGRAMS = ("tiny-gsm", "tiny-math"), ("tiny-mbpp", "tiny-humaneval")


@pytest.fixture
def maker() -> RowMaker:
    return RowMaker(build_tokenizer(), np.random.default_rng(0))


def problems(name: str, count: int = 150) -> list[Problem]:
    return [TASKS[name].problem(seed, split="train") for seed in range(count)]


@pytest.mark.parametrize("name", NUMBERS)
def test_every_form_has_the_result_and_no_wrong_equation(name: str) -> None:
    for problem in problems(name):
        result = problem.answer.split()[-1]
        for text in forms(problem):
            assert text.endswith(f"\n#### {result}")
            for left, right in re.findall(r"([0-9]+ [-+*] [0-9]+) = ([0-9]+)", text):
                assert eval(left) == int(right), text


@pytest.mark.parametrize("name", NUMBERS)
def test_bare_answers_carry_the_number_from_line_to_line(name: str) -> None:
    for problem in problems(name):
        first, *steps, last = forms(problem)[2].splitlines()
        number = int(first.removeprefix("At ").removesuffix("."))
        assert len(steps) == problem.meta["steps"]
        for count, step in enumerate(steps, 1):
            label, sign, operand, equals, after = step.split()
            assert (label, equals) == (f"{count})", "=")
            number = eval(f"{number} {sign} {operand}")
            assert number == int(after), step
        assert last == f"#### {number}"


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_every_form_do_what_is_asked(name: str) -> None:
    for problem in problems(name):
        for text in forms(problem):
            namespace: dict = {}
            exec(problem.meta["before"] + text, namespace)
            function = namespace[problem.meta["function"]]
            assert [function(value) for value in problem.meta["inputs"]] == problem.meta["expected"]


@pytest.mark.parametrize("name", list(TASKS))
def test_lengths_are_clearly_apart_and_leave_room_for_an_eos(maker: RowMaker, name: str) -> None:
    lengths = np.array(
        [[len(maker.encode_text(text)) for text in forms(p)] for p in problems(name)]
    )
    full, brief, bare = lengths.T
    assert (full / bare >= 2).mean() > 0.6
    assert (full / brief > 1.25).mean() > 0.9
    assert (brief / bare > 1.15).mean() > 0.8  # equal, but for a token, if there is one step
    assert full.max() < LONGEST_CANVAS


@pytest.mark.parametrize("name", list(TASKS))
def test_no_two_forms_have_a_token_in_common_that_the_third_lacks_at_the_start(
    maker: RowMaker, name: str
) -> None:
    """Else that token is the surest of the first ones, and the third form is never given."""
    shared = []
    for problem in problems(name):
        beginnings = [maker.encode_text(text)[:10] for text in forms(problem)]
        shared.append(any(len(set(tokens)) == 2 for tokens in zip(*beginnings, strict=True)))
    assert np.mean(shared) < 0.3


def canvas_of(row: Row, prompt: np.ndarray) -> np.ndarray:
    shown = np.where(row.targets == NO_TARGET, row.ids, row.targets)
    return shown[len(prompt) :]


def test_a_form_says_nothing_about_the_canvas(maker: RowMaker) -> None:
    """All three equally often on short, on tight and on roomy canvases; cut where one must be."""
    problem = TASKS["tiny-gsm"].problem(4, 6, split="train")
    prompt = maker.encode_prompt(problem.prompt)
    answers = [maker.encode_text(text) for text in forms(problem)]
    full, _, bare = map(len, answers)
    counts = {size: Counter[str]() for size in ("short", "tight", "roomy")}
    for _ in range(3000):
        canvas = canvas_of(Unsure().canvas_row(maker, problem, 0), prompt)
        if len(canvas) <= bare:
            continue
        given = [
            form
            for form, answer in zip(FORMS, answers, strict=True)
            if (canvas == np.pad(answer, (0, 600), constant_values=maker.eos)[: len(canvas)]).all()
        ]
        size = "short" if len(canvas) <= full else "tight" if len(canvas) < full + 40 else "roomy"
        counts[size].update([*given])
        assert len(given) == 1
    for size, each in counts.items():
        assert each.total() > 80, size
        for form in FORMS:
            assert each[form] / each.total() == pytest.approx(1 / 3, abs=0.12), (size, form)


@pytest.mark.parametrize("name", list(TASKS))
def test_what_is_asked_for_does_not_weigh_in(maker: RowMaker, name: str) -> None:
    """On an empty canvas of a given length every form has the same weights, EOS included."""
    problem = TASKS[name].problem(4, 3, split="train")
    prompt = maker.encode_prompt(problem.prompt)
    weights: dict[int, set[bytes]] = {}
    forms_seen: dict[int, set[bytes]] = {}
    for _ in range(1500):
        row = Unsure().canvas_row(maker, problem, 0)
        if (row.ids[len(prompt) :] == maker.mask).all():
            weights.setdefault(len(row), set()).add(row.weights.tobytes())
            forms_seen.setdefault(len(row), set()).add(row.targets.tobytes())
    assert sum(len(targets) > 1 for targets in forms_seen.values()) > 10
    assert all(len(each) == 1 for each in weights.values())


def test_its_two_stream_rows_have_all_forms(maker: RowMaker) -> None:
    stream = ProblemStream(Unsure(), maker, FULL, seed=3)
    texts = {}
    for batch in stream.batches(Unsure().phase(0.0, 0)):
        for row in np.flatnonzero(np.isin(batch.kind, [Kind.NEXT_TOKEN, Kind.BLOCKS])):
            clean = batch.ids[row][(batch.stream[row] == 0) & (batch.block[row] < 10**6)]
            text = maker.tokenizer.decode(clean)
            texts[text] = "so now we" in text or "so the total" in text
    full = np.array([*texts.values()])
    assert len(full) > 30
    assert 0.15 < full.mean() < 0.55


@pytest.mark.parametrize("name", list(TASKS))
def test_a_text_is_told_by_its_form_even_where_it_goes_wrong(name: str) -> None:
    for problem in problems(name, 20):
        for index, text in enumerate(forms(problem)):
            assert form_of(problem, text) == index
            assert form_of(problem, text[: len(text) // 2] + " and so on") == index


def test_quantiles_of_a_curve_with_three_levels() -> None:
    """Noise that falls back does not count: the text was over by there, or it was not."""
    levels = np.repeat([0.01, 0.33, 0.66, 0.99], 10)
    levels[15] = 0.2
    assert [quantile(levels, share) for share in (0.1, 0.5, 0.9)] == [10, 20, 30]
    assert quantile(levels, 0.999) == 40, "beyond the canvas"
