"""The small checkpoints with recorded logits, one or more for each family, and damage to them."""

import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from rho_eos.models.attention import PACKED, PackedRows
from tests.conftest import DATA

PARITY = DATA / "parity"
NAMES = sorted(path.name for path in PARITY.iterdir() if path.is_dir())
#: Those whose weights are one file.
WHOLE = [name for name in NAMES if (PARITY / name / "model.safetensors").exists()]
#: The family of each.
FAMILY = {
    name: next(f for f in ("llada-moe", "llada", "illada", "dream", name) if name.startswith(f))
    for name in NAMES
}
#: One of each family.
ONE_EACH = sorted({family: name for name, family in FAMILY.items() if name in WHOLE}.values())


def changed(tmp_path: Path, name: str, **fields: Any) -> Path:
    """A copy of a small checkpoint with other fields; None takes a field out."""
    folder = tmp_path / name
    shutil.copytree(PARITY / name, folder)
    config = json.loads((folder / "config.json").read_text()) | fields
    kept = {field: value for field, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept))
    return folder


def recorded(name: str) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Rows of ids, each cut to its length, and the logits the family's own code gives for them."""
    io = load_file(PARITY / name / "io.safetensors")
    rows = [row[:n] for row, n in zip(io["input_ids"], io["lengths"], strict=True)]
    logits = [row[:n] for row, n in zip(io["logits"], io["lengths"], strict=True)]
    return rows, logits


@torch.inference_mode()
def packed_logits(model: Any, rows: list[torch.Tensor]) -> list[torch.Tensor]:
    model.set_attn_implementation(PACKED)
    lengths = tuple(len(row) for row in rows)
    hidden = model.model(
        input_ids=torch.cat(rows)[None],
        position_ids=torch.cat([torch.arange(n) for n in lengths])[None],
        rows=PackedRows(lengths),
    ).last_hidden_state[0]
    return list(model.lm_head(hidden).split(lengths))


SECONDS = 30  # in which a damaged checkpoint is refused
JUNK: list[Any] = [None, True, 0, -1, 1, 2.5, 1e300, 10**12, "", "x", [], [1], {}, {"a": []}]


@contextmanager
def within(seconds: int) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise AssertionError(f"not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
