"""The benchmark runs: same tokens, all its figures, and a picture. Its times are nobody's test."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import decode
from tests import forks

ROOT = Path(__file__).parent.parent


def test_a_quick_run_gives_every_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = [decode.run]

    def run(case: str, decoder: str, quick: bool) -> dict[str, Any]:
        """The first in a new process, as all of them in a benchmark; the rest begin faster."""
        if first:
            return first.pop()(case, decoder, quick)
        words = ["-m", "benchmarks.worker", case, decoder, *["--quick"] * quick]
        done = forks.run(*words, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout.splitlines()[-1]))

    monkeypatch.setattr(decode, "run", run)
    figures, picture = tmp_path / "bench.json", tmp_path / "scaling.png"
    options = ["--quick", "--output", str(figures), "--picture", str(picture)]
    assert decode.main(options) == 0
    assert not first
    report = json.loads(figures.read_text())
    for case in ("embedded", "large_vocabulary"):
        assert report[case]["different answers"] == 0
        ours, naive = report[case]["engine"], report[case]["reference"]
        assert 0 < ours["positions"] < naive["positions"]
        assert 0 < ours["forward_seconds"] < ours["seconds"]
    assert [line["batch_size"] for line in report["by batch size"]] == [1, 2, 4]
    assert all(line["answers_changed"] == 0 for line in report["by batch size"])
    assert report["by sampling"][0]["way"] == "greedy"
    assert picture.read_bytes().startswith(b"\x89PNG")
