"""The example that trains: it moves weights, and goes on where it stopped."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch


def test_the_example_trains_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], use_cores: Callable[[int], None]
) -> None:
    use_cores(1)
    main = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "grpo.py"))["main"]
    small = ["--out", str(tmp_path), "--prompts", "3", "--n", "4", "--test", "1", "--runs"]
    first = main([*small, "variable", "--minutes", "0.001"])["variable"]
    assert first.step >= 1
    second = main([*small, "variable", "--minutes", str(first.spent / 60 + 0.001)])["variable"]
    assert second.log[: first.step] == first.log and second.step > first.step
    pairs = zip(first.llm.model.parameters(), second.llm.model.parameters(), strict=True)
    assert any(not torch.equal(*pair) for pair in pairs) or second.log[-1]["reward"] in (0, 1)
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["variable"]["steps"] == second.step
    assert (tmp_path / "grpo.png").stat().st_size > 1000
    assert "reward" in capsys.readouterr().out
