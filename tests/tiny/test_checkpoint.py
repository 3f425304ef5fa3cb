"""The checkpoint that ships: in the published layout, small, and good at its tasks."""

import json
import re
from pathlib import Path

import pytest
from safetensors import safe_open

import rho_eos.tiny
from rho_eos.decoding.params import DecodeParams
from rho_eos.embedded import sample_of
from rho_eos.evals import find_task
from rho_eos.llm import LLM
from rho_eos.tiny.tasks import TASKS
from tests.conftest import DATA

SHIPPED = Path(rho_eos.tiny.__file__).parent / "checkpoint"
PUBLISHED = DATA / "parity" / "llada-mha"


def keys(folder: Path) -> set[str]:
    """The names of all weights, whatever the layer."""
    with safe_open(folder / "model.safetensors", "pt") as weights:
        return {re.sub(r"\.\d+\.", ".N.", name) for name in weights.keys()}  # noqa: SIM118


def test_keys_and_config_fields_are_those_of_llada() -> None:
    assert keys(SHIPPED) == keys(PUBLISHED)
    ours, theirs = (json.loads((f / "config.json").read_text()) for f in (SHIPPED, PUBLISHED))
    assert set(theirs) - {"torch_dtype"} <= set(ours)  # transformers 5 writes it as `dtype`
    assert "dtype" in ours


def test_it_is_small() -> None:
    with safe_open(SHIPPED / "model.safetensors", "pt") as weights:
        count = sum(weights.get_tensor(name).numel() for name in weights.keys())  # noqa: SIM118
    assert count <= 8_000_000
    assert sum(file.stat().st_size for file in SHIPPED.iterdir()) <= 16 * 2**20


@pytest.mark.parametrize("name", list(TASKS))
def test_it_solves_what_it_is_asked(name: str) -> None:
    task = TASKS[name]
    problems = [task.problem(seed) for seed in range(400, 420)]
    params = DecodeParams(preset="sym", initial_length=16, block_length=8, max_new_tokens=512)
    outputs = LLM(str(SHIPPED)).generate([problem.prompt for problem in problems], params)
    right = sum(
        find_task(name).grade(sample_of(problem), output.text).correct
        for problem, output in zip(problems, outputs, strict=True)
    )
    assert right >= 17
