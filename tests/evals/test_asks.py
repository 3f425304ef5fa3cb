"""What a task may ask for one sample: a gap, a template, parameters, a chat; and give: a score."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rho_eos import DecodeParams, EngineConfig
from rho_eos.base.errors import UserError
from rho_eos.evals import Grade, Sample, Task
from rho_eos.evals.runs.evaluation import Evaluation, evaluate
from rho_eos.evals.runs.run_folder import read_samples
from rho_eos.evals.runs.sources import GoldAnswers
from tests.evals.command import Command
from tests.evals.fixtures import FOLDER
from tests.evals.scripted import Script
from tests.support import require_sandbox


class Words(Task):
    """A chat, without a prompt; answers are scored by how many letters are right."""

    name = "words"

    def load(self, path: Path | None = None, limit: int | None = None) -> list[Sample]:
        return [Sample(f"words/{word}", {"word": word}) for word in ("plum", "fig")]

    def messages(self, sample: Sample) -> list[dict[str, str]]:
        return [
            {"role": "system", "content": "Repeat."},
            {"role": "user", "content": sample.data["word"]},
        ]

    def gold(self, sample: Sample) -> str:
        return str(sample.data["word"])

    def grade(self, sample: Sample, text: str) -> Grade:
        word = sample.data["word"]
        same = sum(a == b for a, b in zip(word, text, strict=False))
        return Grade(text == word, text, "", score=same / len(word))


class OracleLength(Words):
    """Each answer gets exactly the room that it needs."""

    def ask(self, sample: Sample) -> dict[str, Any]:
        room = {"policy": "fixed", "initial_length": len(sample.data["word"])}
        return {**super().ask(sample), "params": room}


def test_a_chat_needs_no_prompt_and_scores_are_kept(tmp_path: Path) -> None:
    gold = Evaluation(tasks=(Words(),), engine=None, params=None)
    lines = evaluate(gold, tmp_path, GoldAnswers)
    assert [line["score"] for line in lines] == [1, 1]
    assert lines[0]["prompt"] == "Repeat.\n\nplum"
    with pytest.raises(UserError, match="score is 2"):
        Grade(correct=True, extracted="", detail="", score=2)


def test_parameters_of_a_sample_beat_those_of_the_run(
    byte_checkpoint: Path, tmp_path: Path
) -> None:
    evaluation = Evaluation(
        tasks=(OracleLength(),),
        engine=EngineConfig(model=str(byte_checkpoint), device="cpu"),
        params=DecodeParams(preset="sym", threshold=0.8, initial_length=16),
    )
    lines = evaluate(evaluation, tmp_path, Script)
    assert {line["sample"]: line["n_token"] for line in lines} == {"words/plum": 4, "words/fig": 3}


def test_infilling_is_graded_by_the_tests_of_the_whole_function(
    command: Command, byte_checkpoint: Path, tmp_path: Path
) -> None:
    require_sandbox()
    words = ("eval", "--tasks", "humaneval-infilling", "-m", byte_checkpoint)
    words += ("--data", FOLDER / "humaneval-infilling.jsonl")
    gold = command(*words, "--policy", "gold", "--out", tmp_path / "gold")
    assert gold.code == 0, gold.err
    lines = read_samples(tmp_path / "gold")
    assert [line["correct"] for line in lines] == [True, True]
    assert any("___    return y\n" in line["prompt"] for line in lines)
    unsaid = command(*words, "--out", tmp_path / "run")
    assert unsaid.code == 2 and "policy is missing" in unsaid.err and "cal" in unsaid.err
    short = ("--initial-length", 4, "--max-new-tokens", 4)
    asked = command(*words, *short, "--policy", "fixed", "--out", tmp_path / "run")
    assert asked.code == 0, asked.err
    assert [line["correct"] for line in read_samples(tmp_path / "run")] == [False, False]


def test_a_file_may_describe_gaps_and_parameters(
    command: Command, byte_checkpoint: Path, tmp_path: Path
) -> None:
    rows = [{"before": "a = ", "behind": " + 1", "right": "2", "room": 3}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = {
        "data": "rows.jsonl",
        "prompt": "$before",
        "suffix": "$behind",
        "params": {"policy": "fixed", "initial_length": "$room"},
        "reference": "right",
        "grader": "exact",
    }
    templated = {**said, "template": "$before ___{5}$behind"}
    del templated["prompt"], templated["suffix"], templated["params"]
    for name, each in (("gap", said), ("whole", templated)):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(each))
    words = ("eval", "-m", byte_checkpoint, "--max-new-tokens", 8)
    files = ("--task-file", tmp_path / "gap.yaml", "--out", tmp_path / "gap")
    result = command(*words, *files)
    assert result.code == 0, result.err
    [line] = read_samples(tmp_path / "gap")
    assert line["n_token"] == 3 and line["prompt"] == "a = ___ + 1"
    files = ("--task-file", tmp_path / "whole.yaml", "--out", tmp_path / "whole")
    result = command(*words, *files, "--policy", "fixed")
    assert result.code == 0, result.err
    [line] = read_samples(tmp_path / "whole")
    assert line["text"].startswith("a = ") and line["text"].endswith(" + 1")
    del said["prompt"]
    (tmp_path / "gap.yaml").write_text(yaml.safe_dump(said))
    bad = command(*words, "--task-file", tmp_path / "gap.yaml", "--out", tmp_path / "x")
    assert bad.code == 2 and "prompt is missing" in bad.err
