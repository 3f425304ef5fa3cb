"""What a command that evaluates refuses before it begins: one line, and nothing is left behind."""

from pathlib import Path

import pytest

from tests.evals.command import Command

BAD = [
    ("eval --tasks gsm9k", "task is 'gsm9k', but takes one of gsm8k"),
    ("eval", "tasks is (), but takes at least one task, unless there is a task file"),
    ("eval --tasks tiny-gsm,tiny-gsm", "but takes each task once"),
    ("eval --tasks tiny-gsm --limit 0", "limit is 0, but takes an integer"),
    ("eval --tasks tiny-gsm --data x.jsonl", "takes TASK=PATH unless exactly one"),
    ("eval --tasks gsm8k --data /no/x.jsonl", "cannot read /no/x.jsonl"),
    ("eval --tasks tiny-gsm --skip -1", "skip is -1, but takes an integer"),
    ("eval --tasks tiny-gsm --sweep /no/x.yaml", "cannot read /no/x.yaml"),
    ("eval --tasks tiny-gsm --rho-low 0.5", "policy gold asks no model"),
    ("survey length", "survey got 'length', but takes one of lengths, stress"),
    ("survey lengths --policies scot", "policies is 'scot', but takes some of fixed,"),
    ("survey lengths --lengths many", "initial_length is 'many', but takes an integer"),
    ("survey lengths --with threshold=2", "threshold is 2.0, but takes"),
    ("survey stress --with cache=all", "cache is 'all', but takes one of none"),
    ("survey lengths --with treshold=0.9", "'treshold' is no decoding parameter"),
    ("survey lengths --with threshold", "--with is 'threshold', but takes NAME=VALUE"),
    ("survey lengths --with policy=fixed", "but with --policies"),
    ("survey lengths --policies fixed --with margin=8", "none of these policies has"),
    ("reproduce maine", "reproduce got 'maine', but takes one of main, init-length, thresholds"),
    ("reproduce main --repeats 0", "repeats is 0, but takes an integer of at least 1"),
    ("reproduce main --profile large", "profile is 'large', but takes one of paper, tiny"),
    ("reproduce main --model /none", "no such model"),
]


@pytest.mark.parametrize(("words", "message"), BAD)
def test_bad_input_is_one_line_and_leaves_no_folder(
    words: str, message: str, command: Command, tmp_path: Path
) -> None:
    gold = ["--policy", "gold"] if words.startswith("eval") else []
    result = command(*words.split(), *gold, "--out", tmp_path / "run")
    assert result.code == 2 and message in result.err and result.err.count("\n") == 1
    assert not (tmp_path / "run").exists()
