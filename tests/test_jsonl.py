import gzip
import json
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rho_eos.base.errors import StorageError, UserError
from rho_eos.files import jsonl, rows
from rho_eos.files.jsonl import WITH_ID, ResultFile
from tests.support import largest_file


@given(
    cut=st.integers(0, 200), back=st.one_of(st.none(), st.integers(0, 3)), count=st.integers(1, 6)
)
def test_after_a_kill_at_any_byte_no_line_is_lost_or_doubled(
    tmp_path_factory: pytest.TempPathFactory, cut: int, back: int | None, count: int
) -> None:
    path = tmp_path_factory.mktemp("run") / "out.jsonl"
    lines = [{"id": f"ü{number}", "text": "line\nbreak"} for number in range(count)]
    size = len(json.dumps(lines[0], ensure_ascii=False).encode()) + 1
    cut = cut if back is None else max(0, count * size - back)  # often near the end
    with ResultFile(path) as results:
        for line in lines:
            results.append(line)
    whole = path.read_bytes()
    path.write_bytes(whole[: min(cut, len(whole))])  # what a killed process may leave behind

    with ResultFile(path) as results:
        results.repair()
        for line in lines:
            if line["id"] not in results.ids:
                results.append(line)

    assert path.read_bytes() == whole


@pytest.mark.parametrize("name", ["in.jsonl.gz", "in.jsonl", "in.txt"])
def test_a_line_without_end_is_named_and_never_held(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small archive holds a line of any length: only what is read of one is ever in memory, and
    the next lines follow."""
    most = 2**18
    for module in (jsonl, rows):
        monkeypatch.setattr(module, "LONGEST_LINE", most)
    path = tmp_path / name
    with gzip.open(path, "wb") if name.endswith("gz") else path.open("wb") as file:
        file.write(b'{"prompt": "a"}\n' + b" " * 50 * most)
        file.write(b'\n{"prompt": "b"}\n' + b'"' * 50 * most)
        file.write(b'\n{"prompt": "c"}\n')
    tracemalloc.start()
    found = list(rows.read_rows(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [row.number for row in found] == [1, 3, 4, 5]
    refused = [str(row.content) for row in found if isinstance(row.content, UserError)]
    assert refused == [f"longer than {most} bytes, the most that is read"]
    assert peak < 12 * most, f"{peak} bytes"


@pytest.mark.parametrize(
    "content",
    [
        b'{"id": "a"}\n{"name": "x"}',  # no line break at the end
        b'{"name": "x"}',
        b'[{"id": "a"}]',
        b"dear diary",
        b"\x00" * 100,
        b'{"id": "a"}\nno line of ours, and no line break',
    ],
)
def test_what_is_not_ours_is_never_touched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    # A file that begins as ours is ours to overwrite.
    for overwrite in (False,) if content.startswith(WITH_ID) else (False, True):
        with pytest.raises(UserError, match="not a result line"):
            ResultFile(path, overwrite=overwrite)
    assert path.read_bytes() == content


def test_opening_a_file_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    content = b'{"id": "a"}\n{"id": "b", "te'
    path.write_bytes(content)
    with ResultFile(path) as results:
        assert set(results.ids) == {"a"}
        assert path.read_bytes() == content
        results.append({"id": "c"})
    assert path.read_bytes() == b'{"id": "a"}\n{"id": "c"}\n'


def test_a_file_has_one_writer(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with ResultFile(path) as first:
        with pytest.raises(UserError, match="another process is writing"):
            ResultFile(path)
        first.append({"id": "b"}, {"id": "a"})
        first.put_in_order(["a", "b"])  # another file in its place: that one is locked as well
        with pytest.raises(UserError, match="another process is writing"):
            ResultFile(path)
        first.append({"id": "c"})
    with ResultFile(path) as second:
        assert list(second.ids) == ["a", "b", "c"]


def test_lines_are_dropped_and_reordered_all_at_once(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with ResultFile(path) as results:
        results.append(*({"id": id, "n": n} for n, id in enumerate("dcba")))
        results.put_in_order(["a", "unknown", "c"])
        assert list(results.ids) == ["a", "c", "d", "b"]
        assert results.line("d") == {"id": "d", "n": 0}
        results.keep_only(lambda line: line["n"] != 1)
        assert results.line("b") == {"id": "b", "n": 2}
    assert [row.content["id"] for row in rows.read_rows(path)] == ["a", "d", "b"]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("path", ["/dev/full", "/dev/zero", "fifo"])
def test_pipes_and_devices_are_refused_at_once(tmp_path: Path, path: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UserError, match="no regular file"):
        ResultFile(tmp_path / path)
    with pytest.raises(UserError, match="no regular file"):
        list(rows.read_rows(tmp_path / path))


def test_a_disk_that_is_full_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with ResultFile(path) as results:
        results.append({"id": "fits"})
        with largest_file(4096), pytest.raises(StorageError, match=r"out\.jsonl: File too large"):
            results.append({"id": "first of two"}, {"id": "large", "text": "x" * 10_000})
        assert set(results.ids) == {"fits"}
        results.append({"id": "fits too"})
        with largest_file(4), pytest.raises(StorageError):
            results.put_in_order(["fits too", "fits"])
    assert path.read_text() == '{"id": "fits"}\n{"id": "fits too"}\n'
    assert list(tmp_path.iterdir()) == [path]
