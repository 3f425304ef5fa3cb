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


def test_an_unknown_task_is_named_with_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"task is 'gsm9k', but takes one of gsm8k, humaneval"):
        find_task("gsm9k")


@pytest.mark.parametrize(
    ("task", "ids"),
    [
        ("gsm8k", ["gsm8k/0", "gsm8k/1", "gsm8k/2", "gsm8k/3"]),
        ("mbpp", ["mbpp/11", "mbpp/12", "mbpp/13", "mbpp/510"]),  # of 3, 11, 12, 13, 510, 511
        ("humaneval", ["Own/0", "Own/1"]),
    ],
)
def test_samples_have_stable_ids_and_only_the_test_split_is_taken(
    task: str, ids: list[str]
) -> None:
    assert [sample.id for sample in samples(task)] == ids


def test_math500_is_identified_by_its_published_ids() -> None:
    assert samples("math500")[0].id == "math500/own/prealgebra/1.json"


@pytest.mark.parametrize("task", TASKS)
def test_the_limit_takes_the_first_samples(task: str) -> None:
    path = FOLDER / f"{task}.jsonl"
    assert find_task(task).load(path, limit=1) == samples(task)[:1]
    assert find_task(task).load(path, limit=1000) == samples(task)


@pytest.mark.parametrize("task", TASKS)
def test_a_parquet_file_is_read_like_json_lines(task: str, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (FOLDER / f"{task}.jsonl").read_text().splitlines()]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "test.parquet")
    assert find_task(task).load(tmp_path / "test.parquet") == samples(task)


def test_a_cut_off_gzipped_file_is_a_clear_error(tmp_path: Path) -> None:
    packed = tmp_path / "cut.jsonl.gz"
    packed.write_bytes(gzip.compress((FOLDER / "humaneval.jsonl").read_bytes())[:-20])
    with pytest.raises(UserError, match=r"cannot read .*cut\.jsonl\.gz"):
        find_task("humaneval").load(packed)
    packed.write_bytes(b"not gzip")
    with pytest.raises(UserError, match=r"cannot read .*cut\.jsonl\.gz"):
        find_task("humaneval").load(packed)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"question": "Why?"', r"data\.jsonl:2: not JSON"),
        ("[1, 2]", r"data\.jsonl:2: expected a JSON object, got list"),
        ('{"question": "Why?"}', r"data\.jsonl:2: no field 'answer', expected the fields question"),
        ('{"question": 3, "answer": "#### 1"}', r"data\.jsonl:2: the field 'question' has the wr"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    path = tmp_path / "data.jsonl"
    first = (FOLDER / "gsm8k.jsonl").read_text().splitlines()[0]
    path.write_text(f"{first}\n{line}\n")
    with pytest.raises(UserError, match=complaint):
        find_task("gsm8k").load(path)


def test_a_repeated_id_is_named_with_both_places(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    line = (FOLDER / "math500.jsonl").read_text().splitlines()[0]
    path.write_text(f"{line}\n\n{line}\n")
    with pytest.raises(UserError, match=r"data\.jsonl:3: .* twice, first at .*data\.jsonl:1"):
        find_task("math500").load(path)


def test_missing_and_empty_files_are_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*nowhere\.jsonl: No such file"):
        find_task("gsm8k").load(tmp_path / "nowhere.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(UserError, match=r"empty\.jsonl holds no sample"):
        find_task("gsm8k").load(tmp_path / "empty.jsonl")


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


def test_without_the_datasets_package_the_hub_is_a_clear_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"openai/gsm8k .* --data\) needs datasets: pip"):
        find_task("gsm8k").load()
