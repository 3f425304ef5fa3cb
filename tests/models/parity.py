"""The small checkpoints with recorded logits, one or more for each family."""

import json
import shutil
from pathlib import Path
from typing import Any

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
