"""The checkpoints that ship: in the published layout, small, and good at their tasks."""

import json
import re
from pathlib import Path

import pytest
from safetensors import safe_open

from rho_eos.base.outputs import Output
from rho_eos.decoding.params import DecodeParams
from rho_eos.evals import find_task
from rho_eos.evals.tasks.embedded import sample_of
from rho_eos.llm import LLM
from rho_eos.models.known import EMBEDDED
from rho_problems import TASKS
from rho_problems.problem import Problem
from tests.conftest import DATA

PUBLISHED = DATA / "parity" / "llada-mha"


def keys(folder: Path) -> set[str]:
    """The names of all weights, whatever the layer."""
    with safe_open(folder / "model.safetensors", "pt") as weights:
        return {re.sub(r"\.\d+\.", ".N.", name) for name in weights.keys()}  # noqa: SIM118


@pytest.mark.parametrize("shipped", EMBEDDED.values(), ids=EMBEDDED)
def test_it_is_a_small_llada_of_the_published_layout(shipped: Path) -> None:
    assert keys(shipped) == keys(PUBLISHED)
    ours, theirs = (json.loads((f / "config.json").read_text()) for f in (shipped, PUBLISHED))
    assert set(theirs) - {"torch_dtype"} <= set(ours)  # transformers 5 writes it as `dtype`
    assert "dtype" in ours
    with safe_open(shipped / "model.safetensors", "pt") as weights:
        count = sum(weights.get_tensor(name).numel() for name in weights.keys())  # noqa: SIM118
    assert count <= 8_000_000
    assert sum(file.stat().st_size for file in shipped.iterdir()) <= 16 * 2**20


def asked(model: str, task: str, params: DecodeParams) -> list[tuple[Problem, Output]]:
    """Twenty problems that nothing was chosen on."""
    problems = [TASKS[task].problem(seed) for seed in range(400, 420)]
    outputs = LLM(model).generate([problem.prompt for problem in problems], params)
    return list(zip(problems, outputs, strict=True))


def count_right(task: str, answers: list[tuple[Problem, Output]]) -> int:
    grade = find_task(task).grade
    return sum(grade(sample_of(problem), output.text).correct for problem, output in answers)


@pytest.mark.parametrize("task", list(TASKS))
def test_tiny_solves_what_it_is_asked(task: str) -> None:
    params = DecodeParams(preset="sym", initial_length=16, block_length=8, max_new_tokens=512)
    assert count_right(task, asked("tiny", task, params)) >= 17


@pytest.mark.parametrize("task", list(TASKS))
def test_tiny_blocks_solves_what_it_is_asked(task: str) -> None:
    assert count_right(task, asked("tiny-blocks", task, DecodeParams())) >= 18


@pytest.mark.parametrize("task", list(TASKS))
def test_terse_compresses_on_a_short_canvas(task: str) -> None:
    """Right where there is room; else an end that hides that the answer did not fit."""
    params = DecodeParams(policy="fixed", block_length=8)
    # With the cache the answers are the same, in a quarter of the time.
    long = asked("terse", task, params.replaced(initial_length=512, cache="window"))
    short = asked("terse", task, params.replaced(initial_length=32))
    assert count_right(task, long) >= 16
    tokenizer = LLM("terse").tokenizer
    cut = [each for each in short if len(tokenizer.encode(each[0].answer)) > 32]
    assert len(cut) >= 10
    assert count_right(task, cut) <= len(cut) / 2
    ended = sum(output.usage.e_token < 32 for _, output in cut)
    assert ended >= len(cut) / 2


@pytest.mark.parametrize("cache", ["none", "window"])
def test_scout_is_not_deceived_by_terse(cache: str) -> None:
    """As often right as with room for everything, from a start where rho-EOS mostly is not."""
    policies = ({"policy": "scout"}, {"preset": "asym"})
    scout, asym = (
        asked("terse", "tiny-gsm", DecodeParams(initial_length=16, cache=cache, **how))
        for how in policies
    )
    assert count_right("tiny-gsm", scout) >= 18
    assert count_right("tiny-gsm", asym) <= 10
    spent = sum(output.usage.positions_evaluated for _, output in scout)
    roomy = DecodeParams(policy="fixed", initial_length=512, cache=cache)
    assert spent < 0.8 * sum(
        output.usage.positions_evaluated for _, output in asked("terse", "tiny-gsm", roomy)
    )
