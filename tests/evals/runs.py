"""Runs made up for tests: lines and folders as an evaluation leaves them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rho_eos.decoding.params import DecodeParams


def line(
    number: int, correct: bool = True, task: str = "tiny-gsm", **fields: Any
) -> dict[str, Any]:
    """A finished sample; any field can be given."""
    sample = f"{task}/test/{number}"
    return {
        "id": sample,
        "task": task,
        "sample": sample,
        "repeat": 0,
        "correct": correct,
        "extracted": "7" if correct else None,
        "detail": "7 = 7" if correct else "no number after ####",
        "finish_reason": "stop",
        "prompt_tokens": 5,
        "n_token": 20,
        "e_token": 10,
        "nfe": 4,
        "positions_evaluated": 100,
        "positions_exact": fields.get("positions_evaluated", 100),
        "refreshes": fields.get("nfe", 4),
        "tokens_per_forward": 5.0,
        "e_ratio": 0.5,
        "adjustments": 2,
        "prompt": f"question {number}",
        "reference": f"#### {number}",
        "text": f"answer {number}",
        "session": 1,
        "elapsed": 1.0 + number,
    } | fields


def write_run(folder: Path, lines: Sequence[dict[str, Any]], **params: Any) -> Path:
    folder.mkdir(parents=True)
    settings = {
        "model": {"model": "random", "weights": "0"},
        "tasks": sorted({each["task"] for each in lines}),
        "params": DecodeParams(**params).model_dump(mode="json"),
    }
    about = {"settings": settings, "sessions": [{"device": "cpu"}]}
    (folder / "run.json").write_text(json.dumps(about))
    (folder / "samples.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    return folder
