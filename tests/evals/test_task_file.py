"""Tasks described in a file: every format, every mistake, and what makes a run another run."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from rho_eos.base.errors import UserError
from rho_eos.evals.runs.run_folder import read_samples
from rho_eos.evals.tasks.task_file import read_task_file
from tests.evals.command import Command
from tests.support import require_sandbox

ROWS = [
    {"key": "a", "word": "straw", "back": "warts"},
    {"key": "b", "word": "Füße, groß", "back": "ßorg ,eßüF"},
]
WORDS = {
    "data": "words.jsonl",
    "prompt": "Spell $word backwards.",
    "reference": "back",
    "grader": "exact",
}


def write_task(folder: Path, file: str = "words", **changes: Any) -> Path:
    """A task file with its data; a change to None leaves a key out."""
    path = folder / f"{file}.yaml"
    said = {key: value for key, value in (WORDS | changes).items() if value is not None}
    path.write_text(yaml.safe_dump(said, allow_unicode=True))
    (folder / "words.jsonl").write_bytes(LINES)
    return path


LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
CSV = 'key,word,back\r\na,straw,warts\r\nb,"Füße, groß","ßorg ,eßüF"\r\n'
DATA = {
    "words.jsonl": LINES,
    "words.jsonl.gz": gzip.compress(LINES),
    "words.csv": b"\xef\xbb\xbf" + CSV.encode(),  # as spreadsheets write it
    "words.parquet": None,
}


@pytest.mark.parametrize("name", DATA)
def test_every_format_gives_the_same_samples(name: str, tmp_path: Path) -> None:
    path = tmp_path / "data" / name
    path.parent.mkdir()
    if content := DATA[name]:
        path.write_bytes(content)
    else:
        pyarrow.parquet.write_table(pa.Table.from_pylist(ROWS), path)
    task = read_task_file(write_task(tmp_path, data=f"data/{name}", id="key"))
    samples = task.load()
    assert [sample.id for sample in samples] == ["words/a", "words/b"]
    prompts = ["Spell straw backwards.", "Spell Füße, groß backwards."]
    assert [task.prompt(sample) for sample in samples] == prompts
    assert [task.gold(sample) for sample in samples] == ["warts", "ßorg ,eßüF"]
    assert task.grade(samples[0], "warts").correct
    assert not task.grade(samples[0], "straw").correct
    assert task.load(limit=1) == samples[:1]


def test_what_is_left_out_has_a_default_and_what_is_said_counts(tmp_path: Path) -> None:
    plain = read_task_file(write_task(tmp_path))
    assert (plain.name, plain.answer_prefix, plain.runs_code) == ("words", "", False)
    assert [sample.id for sample in plain.load()] == ["words/0", "words/1"]
    said = {"answer_prefix": "Backwards:", "gold": "it is [$back]"}
    grader = {"name": "regex", "pattern": r"\[(.*)\]"}
    full = read_task_file(write_task(tmp_path, file="other", **said, grader=grader))
    [sample, _] = full.load()
    assert full.name == "other" and full.answer_prefix == "Backwards:"
    assert full.gold(sample) == "it is [warts]"
    assert full.grade(sample, full.gold(sample)).correct


def test_values_that_are_not_text_are_shown_as_text(tmp_path: Path) -> None:
    path = write_task(tmp_path, prompt="$a $b $c $d", reference="n", grader="number")
    row = {"a": 1.5, "b": True, "c": ["x", 2], "d": None, "n": 12}
    (tmp_path / "words.jsonl").write_text(json.dumps(row))
    task = read_task_file(path)
    [sample] = task.load()
    assert task.prompt(sample) == "1.5 true x\n2 "
    assert task.grade(sample, "#### 12").correct


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"promt": "x"}, "words.yaml: unknown parameter 'promt'; did you mean 'prompt'"),
        ({"data": 5}, "words.yaml: data is 5, but takes a non-empty text"),
        ({"grader": None}, "words.yaml: grader is missing"),
        ({"grader": "exakt"}, "words.yaml: grader is 'exakt', but takes one of exact"),
        ({"name": "a b"}, "words.yaml: name is 'a b', but takes letters, digits, . _ -"),
        ({"name": "gsm8k"}, "gsm8k is a registered task: give that of the file another name"),
        ({"data": "none.csv"}, "none.csv: No such file"),
        ({"prompt": "$wrd"}, "words.jsonl:1: prompt: the template asks for $wrd, expected $key"),
        ({"prompt": "for $ 5"}, "words.jsonl:1: prompt: the template is not valid"),
        ({"gold": "$wrd"}, "words.jsonl:1: gold: the template asks for $wrd"),
        ({"reference": "bak"}, "words.jsonl:1: reference is 'bak', but the fields are key, word"),
        ({"id": "kee"}, "words.jsonl:1: id is 'kee', but the fields are key, word, back"),
        ({"grader": "number"}, "words.jsonl:1: the reference 'warts' holds no number"),
        ({"grader": "python"}, "words.jsonl:1: no field 'tests', which the grader python reads"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_file_and_leaves_no_folder(
    changes: dict[str, Any], complaint: str, command: Command, tmp_path: Path
) -> None:
    if changes.get("grader") == "python":
        require_sandbox()
    path = write_task(tmp_path, **changes)
    result = command("eval", "--policy", "gold", "--task-file", path, "--out", tmp_path / "run")
    assert result.code == 2 and complaint in result.err and result.err.count("\n") == 1
    assert str(path) in result.err or changes in ({"name": "gsm8k"}, {"data": "none.csv"})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("prompt: [", r"cannot read .*words\.yaml: while parsing"),
        ("just words", r"words\.yaml takes a mapping with the keys name, data"),
    ],
)
def test_a_file_that_is_no_mapping_is_named(content: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "words.yaml"
    path.write_text(content)
    with pytest.raises(UserError, match=complaint):
        read_task_file(path)


def test_a_file_of_its_own_leaves_no_room_for_another(command: Command, tmp_path: Path) -> None:
    path = write_task(tmp_path)
    with pytest.raises(UserError, match=r"words reads .*words\.jsonl, as its file says"):
        read_task_file(path).load(Path("x.jsonl"))
    words = ("eval", "--policy", "gold", "--task-file", path, "--out", tmp_path / "run")
    result = command(*words, "--data", "x.jsonl")
    assert result.code == 2 and "takes TASK=PATH unless exactly one task" in result.err


def test_a_changed_file_or_changed_data_does_not_continue_an_old_run(
    command: Command, tmp_path: Path
) -> None:
    words = ("eval", "--policy", "gold", "--out", tmp_path / "run", "--task-file")
    for _ in range(2):  # the same may go on
        assert command(*words, write_task(tmp_path)).code == 0
    grader = {"name": "exact", "ignore_case": True}
    for name, value in {"prompt": "Turn $word round.", "grader": grader}.items():
        result = command(*words, write_task(tmp_path, **{name: value}))
        assert result.code == 2 and f"started with words {name}" in result.err
    path, data = write_task(tmp_path), tmp_path / "words.jsonl"
    data.write_text(data.read_text().replace("straw", "straws"))
    assert "started with words data" in command(*words, path).err


def test_several_files_and_registered_tasks_in_one_run(command: Command, tmp_path: Path) -> None:
    one, two = write_task(tmp_path, file="one"), write_task(tmp_path, file="two")
    words = ("eval", "--policy", "gold", "--limit", "2", "--out", tmp_path / "run")
    words += ("--task-file", one, "--task-file", two, "--tasks", "tiny-gsm")
    result = command(*words)
    assert result.code == 0, result.err
    lines = read_samples(tmp_path / "run")
    assert [line["task"] for line in lines] == ["tiny-gsm"] * 2 + ["one"] * 2 + ["two"] * 2
    assert all(line["correct"] for line in lines)
    again = command(*words, "--task-file", one)
    assert again.code == 2 and "takes each task once" in again.err


def test_runs_of_tasks_that_are_not_here_can_be_compared_and_read(
    command: Command, tmp_path: Path
) -> None:
    words = ("eval", "--policy", "gold", "--task-file", write_task(tmp_path))
    for name in ("a", "b"):
        assert command(*words, "--out", tmp_path / name).code == 0
    for file in (*tmp_path.glob("*.yaml"), *tmp_path.glob("*.jsonl")):
        file.unlink()
    result = command("compare", tmp_path / "a", tmp_path / "b")
    assert result.code == 0 and "words" in result.out, result.err
    assert command("inspect", tmp_path / "a").code == 0
    assert "Spell straw backwards." in (tmp_path / "a" / "report.html").read_text()
