"""A checkpoint that names its own code is read without it, and without asking."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoModel, AutoModelForMaskedLM

from rho_eos.config import EngineConfig
from rho_eos.errors import UserError
from rho_eos.models.loading import open_checkpoint
from tests.checkpoints import byte_tokenizer
from tests.models.test_families import changed

AUTO_MAP = {
    "AutoConfig": "bomb.Config",
    "AutoModel": "bomb.Model",
    "AutoModelForMaskedLM": "bomb.Model",
    "AutoModelForCausalLM": "bomb.Model",
}


def booby_trapped(tmp_path: Path, name: str) -> Path:
    folder = changed(tmp_path, name, auto_map=AUTO_MAP)
    (folder / "bomb.py").write_text("raise SystemExit('remote code was run')\n")
    tokenizer = byte_tokenizer()
    tokenizer.save_pretrained(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {
        "tokenizer_class": "BombTokenizer",
        "auto_map": {"AutoTokenizer": ["bomb.T", None]},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize("name", ["llada-mha", "llada-moe", "illada", "dream", "a2d-qwen2"])
@pytest.mark.parametrize("trust", [{}, {"trust_remote_code": True}], ids=["", "trusted"])
def test_remote_code_is_never_run(tmp_path: Path, name: str, trust: dict[str, bool]) -> None:
    folder = booby_trapped(tmp_path, name)
    model = AutoModelForMaskedLM.from_pretrained(folder, **trust)
    assert type(model).__module__.startswith("rho_eos.models.families")
    assert type(AutoModel.from_pretrained(folder, **trust)) is type(model.model)
    assert not hasattr(model.config, "auto_map")


LOAD = """
import sys
import rho_eos.models
from rho_eos.config import EngineConfig
from rho_eos.models.loading import open_checkpoint
from transformers import AutoModelForMaskedLM
for folder in sys.argv[1:]:
    print(type(AutoModelForMaskedLM.from_pretrained(folder)).__name__)
    open_checkpoint(EngineConfig(model=folder, mask_token_id=3))
    print("opened")
"""


def test_nothing_is_asked_on_a_terminal(tmp_path: Path) -> None:
    """transformers asks whether to run a checkpoint's code where it knows no other and can ask."""
    folders = [booby_trapped(tmp_path, name) for name in ("illada", "llada-moe", "dream")]
    ours, theirs = pty.openpty()
    try:
        result = subprocess.run(
            [sys.executable, "-c", LOAD, *map(str, folders)],
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=300,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    finally:
        os.close(ours)
        os.close(theirs)
    said = result.stdout + result.stderr
    assert result.returncode == 0, said
    assert "Do you wish to run" not in said
    assert "remote code was run" not in said
    classes = ("ILLaDAForMaskedLM", "LLaDAMoEForMaskedLM", "DreamForMaskedLM")
    assert result.stdout.split() == [word for name in classes for word in (name, "opened")]


def test_a_tokenizer_that_is_only_code_is_refused(tmp_path: Path) -> None:
    folder = booby_trapped(tmp_path, "illada")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"BombTokenizer.*code, which is never run"):
        open_checkpoint(EngineConfig(model=str(folder), mask_token_id=3))
