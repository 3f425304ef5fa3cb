"""The small checkpoints with recorded logits, one or more for each family, and damage to them."""

import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from rho_eos.models.attention import PACKED, PackedRows
from tests.conftest import DATA

PARITY = DATA / "parity"
#: All of them; those with attention in blocks are apart below.
EVERY = sorted(path.name for path in PARITY.iterdir() if path.is_dir())
#: The family of each, in lower case: the first that its name begins with.
_FAMILIES = {
    "llada-moe": "llada-moe",
    "llada2-moe": "llada2_moe",
    "llada": "llada",
    "illada": "illada",
    "dream": "dream",
    "a2d-qwen2": "a2d-qwen2",
    "a2d-qwen3": "a2d-qwen3",
    "sdar-moe": "sdar_moe",
    "sdar": "sdar",
    "fast-dllm-v2": "fast_dllm_qwen",
}
FAMILY = {
    name: next(f for start, f in _FAMILIES.items() if name.startswith(start)) for name in EVERY
}


def _in_blocks(name: str) -> bool:
    with safe_open(PARITY / name / "io.safetensors", framework="pt") as io:
        return "block_length" in io.keys()  # noqa: SIM118 (not a dict)


#: Those whose logits were recorded with attention in blocks, and the others.
BLOCKS = [name for name in EVERY if _in_blocks(name)]
NAMES = [name for name in EVERY if name not in BLOCKS]
#: Those whose weights are one file.
WHOLE = [name for name in EVERY if (PARITY / name / "model.safetensors").exists()]
#: One of each family, and of each in blocks.
ONE_EACH, ONE_EACH_IN_BLOCKS = (
    sorted({FAMILY[name]: name for name in WHOLE if name in names}.values())
    for names in (NAMES, BLOCKS)
)


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


def in_blocks(name: str, *rows: int) -> dict[str, Any]:
    """What a forward over these rows is to be told of blocks; nothing for full attention."""
    io = load_file(PARITY / name / "io.safetensors")
    if "block_length" not in io:
        return {}
    told = {"block_length": int(io["block_length"])}
    return told | ({"block_offsets": io["block_offsets"][[*rows]]} if "block_offsets" in io else {})


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
