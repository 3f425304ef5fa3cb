"""The benchmark runs: same tokens, all its figures, and a picture. Its times are nobody's test."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_a_quick_run_gives_every_figure(tmp_path: Path) -> None:
    figures, picture = tmp_path / "bench.json", tmp_path / "scaling.png"
    options = ["--quick", "--output", str(figures), "--picture", str(picture)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.decode", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(figures.read_text())
    for case in ("embedded", "large_vocabulary"):
        assert report[case]["different answers"] == 0
        assert report[case]["prompts"] == 4
        assert report[case]["times faster"] > 0
        ours, naive = report[case]["engine"], report[case]["reference"]
        assert 0 < ours["positions"] < naive["positions"]
        assert 0 < ours["forward_seconds"] < ours["seconds"]
    assert [line["batch_size"] for line in report["by batch size"]] == [1, 2, 4]
    assert len({line["positions"] for line in report["by batch size"]}) == 1
    assert all(line["answers_changed"] == 0 for line in report["by batch size"])
    assert [line["length"] for line in report["by length"]] == [64, 128]
    assert report["by sampling"][0]["way"] == "greedy"
    assert len(report["by sampling"]) == 4
    assert picture.read_bytes().startswith(b"\x89PNG")
