"""`rho-eos probe`: its numbers against forwards made by hand, and what it makes of lines."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rho_eos import LLM
from rho_eos.decoding.curve import monotone
from rho_eos.evals.probing.findings import advice, findings
from tests.evals.command import Command

SMALL = ("--canvases", "32,64", "--write", "64")


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "samples.jsonl").open()]


def test_it_writes_down_what_a_forward_says(
    command: Command, llm: LLM, byte_checkpoint: Path, tmp_path: Path
) -> None:
    prompts, out = tmp_path / "prompts.txt", tmp_path / "probe"
    prompts.write_text("hello\nwhat now\n")
    asked = ("probe", byte_checkpoint, *SMALL, "--prompts", prompts, "--out", out)
    assert command(*asked).code == 0
    lines = lines_of(out)
    assert len(lines) == 2
    [prompt] = llm.preparer.prepare(llm._ask("hello", None, {}))
    ids = [*prompt.canvas.prompt, *[llm.special.mask] * 64]
    with torch.no_grad():
        logits = llm.model(torch.tensor([ids])).logits[0, -64:].double()
    f = monotone(logits.softmax(-1)[:, llm.special.eos].numpy())
    look = lines[0]["looks"][1]
    assert look["length"] == 64
    assert look["curve"][:32] == pytest.approx(f[::2], abs=2e-4)
    assert look["expected"] == pytest.approx(64 - f.sum(), rel=1e-4)
    page = (out / "probe.html").read_text()
    assert "<script" not in page
    assert json.loads((out / "probe.json").read_text())["prompts"] == 2

    # What is there is not measured again; other settings are another probe.
    before = (out / "samples.jsonl").read_bytes()
    assert command(*asked).code == 0
    assert (out / "samples.jsonl").read_bytes() == before
    refused = command(*asked, "--temperature", "0.5")
    assert refused.code == 2
    assert "temperature" in refused.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("tiny-blocks",), "block diffusion"),
        (("tiny", "--canvases", "4096,8192"), "canvases"),
        (("tiny", "--tasks", "tiny-gsm", "--prompts", "x.txt"), "not from both"),
        (("tiny", "--against", "policy=fixed"), "dtype="),
        (("tiny", "--prompts", "missing.txt"), "missing.txt"),
    ],
)
def test_what_cannot_be_probed_is_refused(
    command: Command, tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    result = command("probe", *words, "--out", tmp_path / "probe")
    assert result.code == 2
    assert says in result.err
    assert "Traceback" not in result.err


def told(quantiles: list[int | None], length: int = 512, guess: int = 1) -> dict[str, Any]:
    curve = np.linspace(0, 1, 33).tolist()
    return {
        "length": length, "expected": 9.0, "quantiles": quantiles, "curve": curve,
        "guess": [guess] * 32,
    }  # fmt: skip


def line(id: int, quantiles: list[int | None], tokens: int, short: int = 1) -> dict[str, Any]:
    looks = [told(quantiles, 64, short), told(quantiles)]
    return {"id": str(id), "looks": looks, "written": looks[-1], "tokens": tokens, "ended": True}


def test_a_ramp_that_is_true_is_told_from_one_that_promises_too_much() -> None:
    """Of 100 texts as many end by each quantile as it says, or none ends by the 90% one."""
    quantiles: list[int | None] = [10, 25, 50, 75, 90]
    true = findings([line(at, quantiles, tokens=at + 1) for at in range(100)])
    assert true.shape == "a ramp"
    assert true.steepness == 9.0
    assert [each.actual.mean for each in true.reliability] == pytest.approx(
        [0.1, 0.25, 0.5, 0.75, 0.9]
    )
    assert any("at its word" in sentence for sentence in advice(true))
    assert any("--look 128" in sentence for sentence in advice(true))
    bold = findings([line(at, quantiles, tokens=91) for at in range(100)])
    assert any("promises too much" in sentence for sentence in advice(bold))


def test_a_step_and_a_model_that_a_short_canvas_changes() -> None:
    step = findings([line(at, [99, 100, 100, 100, 101], 100, short=2) for at in range(20)])
    assert step.shape == "a step"
    assert step.canvases[0].trusted == 0
    assert any("changes the text" in sentence for sentence in advice(step))


def test_without_an_end_in_sight_no_length_is_recommended() -> None:
    unseen = findings([line(at, [None] * 5, 100) for at in range(20)])
    assert unseen.shape == "no end in sight"
    [sentence] = advice(unseen)
    assert "--policy blocks" in sentence
