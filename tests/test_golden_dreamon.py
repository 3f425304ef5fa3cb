"""Token for token what DreamOn's public code returns, in batches it never saw."""

import json
from pathlib import Path
from typing import Any

import pytest

from rho_eos import LLM, DecodeParams
from rho_eos.files.generate_job import GenerateJob
from rho_eos.files.jobs import Executor
from tests.conftest import DATA

FOLDER = DATA / "golden" / "dreamon"
TRACES = [json.loads(line) for line in (FOLDER / "traces.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(str(FOLDER / "checkpoint"), max_rows=8)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """The traces as requests: their parameters are ours, by the same names."""
    path = tmp_path / "in.jsonl"
    requests = [
        {
            "id": trace["id"],
            "prompt_token_ids": trace["prefix_token_ids"],
            "suffix_token_ids": trace["suffix_token_ids"],
            "policy": "dreamon",
            **trace["parameters"],
        }
        for trace in TRACES
    ]
    path.write_text("".join(json.dumps(request) + "\n" for request in requests))
    return path


def decode(llm: LLM, lines: Path, **defaults: Any) -> dict[str, list[int]]:
    complaints: list[str] = []
    executor = Executor.of(llm)
    job = GenerateJob(defaults, False, "", llm.preparer, lambda: executor)
    requests = map(executor.request, job.items(lines, complaints.append))
    outputs = {output.id: output.token_ids for output in executor.decode(requests)}
    assert not complaints
    return outputs


def test_the_middles_equal_the_published_ones(llm: LLM, lines: Path) -> None:
    expected = {trace["id"]: trace["middle_token_ids"] for trace in TRACES}
    assert len(expected) == 24
    assert decode(llm, lines) == expected


def test_also_with_a_cache_that_refreshes_in_every_step(llm: LLM, lines: Path) -> None:
    assert decode(llm, lines, cache="window", cache_steps=1) == decode(llm, lines)


def test_the_traces_exercise_every_move(llm: LLM) -> None:
    """Guard of the oracle: all orders, expansions, deletions and a used-up budget."""
    assert {trace["parameters"]["order"] for trace in TRACES} == {
        "entropy",
        "maskgit_plus",
        "topk_margin",
    }
    params = DecodeParams(policy="dreamon", trace=True, **TRACES[2]["parameters"])
    prefix, suffix = TRACES[2]["prefix_token_ids"], TRACES[2]["suffix_token_ids"]
    output = llm.infill(prefix, suffix, params)
    assert {"insert", "delete", "hold"} >= {record.action for record in output.trace} > {"hold"}
    assert output.usage.n_token >= TRACES[2]["parameters"]["max_new_tokens"] - 1


def test_where_nothing_is_named_such_a_model_finds_the_length_itself(llm: LLM) -> None:
    prefix, suffix = TRACES[0]["prefix_token_ids"], TRACES[0]["suffix_token_ids"]
    named = llm.infill(prefix, suffix, {"policy": "dreamon"})
    assert llm.infill(prefix, suffix).token_ids == named.token_ids


def test_expand_is_never_text(llm: LLM) -> None:
    """Fixed length on the same model: EXPAND is an instruction that nobody there can follow."""
    for trace in TRACES[:6]:
        output = llm.infill(
            trace["prefix_token_ids"],
            trace["suffix_token_ids"],
            {"policy": "fixed", "initial_length": 12},
        )
        assert len(output.token_ids) == 12
        assert llm.special.expand not in output.token_ids
