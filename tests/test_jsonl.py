import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rho_eos.errors import UserError
from rho_eos.jsonl import ResultFile, read_lines


@given(cut=st.integers(0, 200), count=st.integers(1, 6))
def test_after_a_kill_at_any_byte_no_line_is_lost_or_doubled(
    tmp_path_factory: pytest.TempPathFactory, cut: int, count: int
) -> None:
    path = tmp_path_factory.mktemp("run") / "out.jsonl"
    lines = [{"id": f"ü{number}", "text": "line\nbreak"} for number in range(count)]
    with ResultFile(path) as results:
        for line in lines:
            results.append(line)
    whole = path.read_bytes()
    path.write_bytes(whole[: min(cut, len(whole))])  # what a killed process may leave behind

    with ResultFile(path) as results:
        for line in lines:
            if line["id"] not in results.ids:
                results.append(line)

    assert path.read_bytes() == whole


def test_a_file_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary\n")
    with pytest.raises(UserError, match=r"notes\.txt:1: not a result line"):
        ResultFile(path)
    assert path.read_text() == "dear diary\n"


def test_reading_names_file_and_line_of_what_is_no_object(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps({"prompt": "a"}) + "\n{oops\n\n[1]\n" + json.dumps({"prompt": "b"}))
    found = dict(read_lines(path))
    assert found[1] == {"prompt": "a"} and found[5] == {"prompt": "b"}
    assert str(found[2]).startswith(f"{path}:2: not JSON")
    assert str(found[4]) == f"{path}:4: not a JSON object"


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*nothing: No such file"):
        list(read_lines(tmp_path / "nothing"))
