"""A checkpoint that names its own code is read without it, and without asking."""

import json
import os
import pty
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModel, AutoModelForMaskedLM

from rho_eos.base.errors import UserError
from rho_eos.config import EngineConfig
from rho_eos.models.loading import open_checkpoint
from tests import forks
from tests.checkpoints import byte_tokenizer
from tests.models.parity import ONE_EACH, ONE_EACH_IN_BLOCKS, changed

AUTO_MAP = {
    "AutoConfig": "bomb.Config",
    "AutoModel": "bomb.Model",
    "AutoModelForMaskedLM": "bomb.Model",
    "AutoModelForCausalLM": "bomb.Model",
}


def booby_trapped(tmp_path: Path, name: str) -> Path:
    folder = changed(tmp_path, name, auto_map=AUTO_MAP)
    (folder / "bomb.py").write_text(
        f"open({str(folder / 'ran')!r}, 'w')\nraise SystemExit('remote code was run')\n"
    )
    tokenizer = byte_tokenizer()
    tokenizer.save_pretrained(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {
        "tokenizer_class": "BombTokenizer",
        "auto_map": {"AutoTokenizer": ["bomb.T", None]},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize("name", [*ONE_EACH, *ONE_EACH_IN_BLOCKS])
@pytest.mark.parametrize("trust", [{}, {"trust_remote_code": True}], ids=["", "trusted"])
def test_remote_code_is_never_run(tmp_path: Path, name: str, trust: dict[str, bool]) -> None:
    folder = booby_trapped(tmp_path, name)
    model = AutoModelForMaskedLM.from_pretrained(folder, **trust)
    assert type(model).__module__.startswith("rho_eos.models.")
    assert type(AutoModel.from_pretrained(folder, **trust)) is type(model.model)
    assert not hasattr(model.config, "auto_map")


def test_a_tokenizer_that_is_only_code_is_refused(tmp_path: Path) -> None:
    folder = booby_trapped(tmp_path, "illada")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"BombTokenizer.*code, which is never run"):
        open_checkpoint(EngineConfig(model=str(folder), mask_token_id=3))


#: Every way a tokenizer can name code of its own.
TOKENIZERS: list[dict[str, Any]] = [
    {"tokenizer_class": "BombTokenizer", "auto_map": {"AutoTokenizer": ["bomb.T", None]}},
    {"tokenizer_class": "BombTokenizer", "auto_map": {"AutoTokenizer": [None, "bomb.T"]}},
    {"tokenizer_class": "BombTokenizer", "auto_map": {"AutoTokenizer": "bomb.T"}},
    {"tokenizer_class": "BombTokenizer", "auto_map": ["bomb.T", "bomb.T"]},
    {"tokenizer_class": "LlamaTokenizer", "auto_map": {"AutoTokenizer": ["bomb.T", "bomb.T"]}},
    {"tokenizer_class": "PreTrainedTokenizerFast", "auto_map": {"AutoTokenizer": ["bomb.T", None]}},
    {"tokenizer_class": None, "auto_map": {"AutoTokenizer": ["bomb.T", "bomb.T"]}},
    {"auto_map": {"AutoTokenizer": ["bomb.T", "bomb.T"], "AutoProcessor": "bomb.P"}},
    {"tokenizer_class": "someone/repository--bomb.T", "auto_map": {"AutoTokenizer": ["a--b.T"]}},
]
OPEN = """
import sys
import rho_eos.models.auto
from rho_eos import LLM, UserError
from transformers import AutoModelForMaskedLM
for folder in sys.argv[1:]:
    AutoModelForMaskedLM.from_pretrained(folder)
    try:
        LLM(folder, mask_token_id=3)
    except UserError as error:
        print("refused:", error)
    else:
        print("loaded")
print("all seen")
"""


def test_who_answers_yes_on_a_terminal_is_not_even_asked(tmp_path: Path) -> None:
    """Input, output and errors are a terminal, on which somebody types y again and again.

    transformers asks whether to run a checkpoint's code where it knows no other and can ask.
    """
    folders = [booby_trapped(tmp_path, name) for name in ("illada", "llada-moe", "dream")]
    for number, fields in enumerate(TOKENIZERS):
        folder = booby_trapped(tmp_path / str(number), "illada")
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        settings = {key: value for key, value in settings.items() if key != "tokenizer_class"}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings | fields))
        folders.append(folder)
    ours, theirs = pty.openpty()
    try:
        process = forks.Fork("-c", OPEN, *folders, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        os.write(ours, b"y\n" * 50)
        said = b""
        with suppress(OSError):  # that is how a terminal ends
            while part := os.read(ours, 65536):
                said += part
        assert process.wait(240) == 0, said.decode()
    finally:
        os.close(ours)
    assert b"all seen" in said and b"loaded" in said, said.decode()
    assert b"[y/N]" not in said and b"Do you wish" not in said
    assert [folder for folder in folders if (folder / "ran").exists()] == []
