"""Loading benchmarks: the published formats, and messages that lead to the bad line."""

import gzip
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from rho_eos.base.errors import UserError
from rho_eos.evals import find_task
from tests.evals.fixtures import FOLDER, TASKS, samples


@pytest.mark.parametrize(
    ("task", "ids"),
    [
        ("gsm8k", ["gsm8k/0", "gsm8k/1", "gsm8k/2", "gsm8k/3"]),
        ("math500", ["math500/own/prealgebra/1.json"]),
        ("mbpp", ["mbpp/11", "mbpp/12", "mbpp/13", "mbpp/510"]),  # of 3, 11, 12, 13, 510, 511
        ("humaneval", ["Own/0", "Own/1"]),
    ],
)
def test_samples_have_stable_ids_and_only_the_test_split_is_taken(
    task: str, ids: list[str]
) -> None:
    assert [sample.id for sample in samples(task)][: len(ids)] == ids
    path = FOLDER / f"{task}.jsonl"
    assert find_task(task).load(path, limit=1) == samples(task)[:1]
    assert find_task(task).load(path, limit=1000) == samples(task)


@pytest.mark.parametrize("task", TASKS)
def test_a_parquet_file_is_read_like_json_lines(task: str, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (FOLDER / f"{task}.jsonl").read_text().splitlines()]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "test.parquet")
    assert find_task(task).load(tmp_path / "test.parquet") == samples(task)


FIRST = (FOLDER / "gsm8k.jsonl").read_bytes().splitlines(keepends=True)[0]


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("data.jsonl", FIRST + b'{"question": "Why?"', r"data\.jsonl:2: not JSON"),
        ("data.jsonl", FIRST + b"[1, 2]", r"data\.jsonl:2: expected a JSON object, got list"),
        ("data.jsonl", FIRST + b'{"question": "Why?"}', r"data\.jsonl:2: no field 'answer'"),
        ("data.jsonl", b'{"question": 3, "answer": "1"}', r"data\.jsonl:1: the field 'question'"),
        ("data.jsonl", b"\n", r"data\.jsonl holds no sample"),
        ("data.jsonl", None, r"cannot read .*data\.jsonl: No such file"),
        ("cut.jsonl.gz", gzip.compress(FIRST)[:-20], r"cannot read .*cut\.jsonl\.gz"),
        ("cut.jsonl.gz", b"not gzip", r"cannot read .*cut\.jsonl\.gz"),
        ("data.csv", b"question,answer\nWhy?\n", r"data\.csv:2: expected the 2 columns"),
        ("data.csv", b'question,answer\n"a"b,c\n', r"data\.csv:2: not CSV: "),
        ("data.csv", b"question,answer\n\xff,b\n", r"data\.csv:2: not UTF-8 text"),
        ("data.csv", b'question,"answer"x\n', r"cannot read .*data\.csv as CSV"),
        ("data.parquet", b"PAR1 not really", r"cannot read .*data\.parquet as Parquet"),
    ],
)
def test_a_bad_line_or_file_is_named(
    name: str, content: bytes | None, complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=complaint):
        find_task("gsm8k").load(path)


def test_a_repeated_id_is_named_with_both_places(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    line = (FOLDER / "math500.jsonl").read_text().splitlines()[0]
    path.write_text(f"{line}\n\n{line}\n")
    with pytest.raises(UserError, match=r"data\.jsonl:3: .* twice, first at .*data\.jsonl:1"):
        find_task("math500").load(path)


@pytest.mark.parametrize(
    ("task", "name", "config"),
    [
        ("gsm8k", "openai/gsm8k", "main"),
        ("math500", "HuggingFaceH4/MATH-500", None),
        ("mbpp", "google-research-datasets/mbpp", "full"),
        ("humaneval", "openai/openai_humaneval", None),
    ],
)
def test_without_a_file_the_hub_is_asked(
    monkeypatch: pytest.MonkeyPatch, task: str, name: str, config: str | None
) -> None:
    rows = [json.loads(line) for line in (FOLDER / f"{task}.jsonl").read_text().splitlines()]

    def load_dataset(*arguments: Any, **options: Any) -> list[dict[str, Any]]:
        assert arguments == (name, config) and options == {"split": "test"}
        return rows

    package = ModuleType("datasets")
    package.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", package)
    assert find_task(task).load(limit=2) == samples(task)[:2]


def test_without_a_package_the_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("datasets", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "data.parquet").write_bytes(b"")
    with pytest.raises(UserError, match=r"needs pyarrow: pip install 'rho-eos\[eval\]'"):
        find_task("gsm8k").load(tmp_path / "data.parquet")
    with pytest.raises(UserError, match=r"openai/gsm8k .* --data\) needs datasets: pip"):
        find_task("gsm8k").load()
