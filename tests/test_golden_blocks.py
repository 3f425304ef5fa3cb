"""Block diffusion, token for token what five public samplers return, in batches they never saw."""

import json
from pathlib import Path
from typing import Any

import pytest

from rho_eos import LLM
from rho_eos.base.outputs import Output
from tests.conftest import DATA

GOLDEN = DATA / "golden" / "blocks"
TRACES = sorted(GOLDEN.glob("*/traces*.jsonl"))
IDS = {"mask_token_id": 3, "eos_token_id": 2}


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def before_stop(tokens: list[int], line: dict[str, Any]) -> list[int]:
    """What counts of an answer: what stands before the first stop token, up to its limit."""
    stops = line["parameters"]["stop_token_ids"]
    end = next((at for at, token in enumerate(tokens) if token in stops), len(tokens))
    return tokens[: min(end, line["parameters"]["max_new_tokens"])]


def expected(line: dict[str, Any]) -> list[int]:
    return before_stop(line.get("canvas_token_ids") or line["output_token_ids"], line)


@pytest.fixture(scope="module", params=TRACES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def traces(request: pytest.FixtureRequest) -> tuple[LLM, list[dict[str, Any]]]:
    file: Path = request.param
    return LLM(str(file.parent / "checkpoint"), max_rows=8, **IDS), lines_of(file)


def decode(llm: LLM, lines: list[dict[str, Any]], **more: Any) -> list[Output]:
    prompts = [{"prompt_token_ids": line["prompt_token_ids"]} for line in lines]
    return llm.generate(prompts, [{**line["parameters"], **more} for line in lines])


@pytest.mark.parametrize("cache", ["blocks", "none"])
def test_tokens_are_those_of_the_public_sampler(
    traces: tuple[LLM, list[dict[str, Any]]], cache: str
) -> None:
    llm, lines = traces
    for line, output in zip(lines, decode(llm, lines, cache=cache), strict=True):
        ours, theirs = before_stop(output.token_ids, line), expected(line)
        if line["implementation"] == "fast-dllm-v2":  # it counts opened blocks, not tokens
            length = min(len(ours), len(theirs))
            assert length == len(theirs) or output.finish_reason == "length"
            theirs, ours = theirs[:length], ours[:length]
        assert ours == theirs, line["id"]


@pytest.mark.parametrize("name", ["a2d-bd3lm", "sdar"])
def test_forwards_are_those_of_the_public_sampler(name: str) -> None:
    """Where a row ends with its block, as these samplers end it, and stores ride along."""
    lines = lines_of(GOLDEN / name / "traces.jsonl")
    llm = LLM(str(GOLDEN / name / "checkpoint"), max_rows=8, **IDS)
    for line, output in zip(lines, decode(llm, lines, early_stop=False), strict=True):
        assert output.usage.nfe == line["forwards"]["denoise"], line["id"]


def test_a_line_runs_as_it_is_from_a_file(run: Any, tmp_path: Path) -> None:
    """A line of the traces is a line of `generate --input`."""
    target, folder = tmp_path / "out.jsonl", GOLDEN / "sdar"
    ids = ["--mask-token-id", "3", "--eos-token-id", "2"]
    files = ["--input", str(folder / "traces.jsonl"), "--output", str(target)]
    result = run("generate", *ids, *files, model=folder / "checkpoint")
    assert result.code == 0, result.err
    outputs = {line["id"]: line for line in lines_of(target)}
    for line in lines_of(folder / "traces.jsonl"):
        assert before_stop(outputs[line["id"]]["token_ids"], line) == expected(line)
