"""A checkpoint that names its own code is read without it, and without asking."""

import ast
import json
import os
import pty
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModel, AutoModelForMaskedLM

import rho_eos
from rho_eos.base.errors import UserError
from rho_eos.config import EngineConfig
from rho_eos.models.loading import open_checkpoint
from tests import forks
from tests.checkpoints import byte_tokenizer
from tests.models.parity import ONE_EACH, changed

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


@pytest.mark.parametrize("name", ONE_EACH)
@pytest.mark.parametrize("trust", [{}, {"trust_remote_code": True}], ids=["", "trusted"])
def test_remote_code_is_never_run(tmp_path: Path, name: str, trust: dict[str, bool]) -> None:
    folder = booby_trapped(tmp_path, name)
    model = AutoModelForMaskedLM.from_pretrained(folder, **trust)
    assert type(model).__module__.startswith("rho_eos.models.")
    assert type(AutoModel.from_pretrained(folder, **trust)) is type(model.model)
    assert not hasattr(model.config, "auto_map")


LOAD = """
import sys
import rho_eos.models.auto
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
        result = forks.run("-c", LOAD, *folders, stdin=theirs)
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
from rho_eos import LLM, UserError
for folder in sys.argv[1:]:
    try:
        LLM(folder, mask_token_id=3)
    except UserError as error:
        print("refused:", error)
    else:
        print("loaded")
print("all seen")
"""


def test_who_answers_yes_on_a_terminal_is_not_even_asked(tmp_path: Path) -> None:
    """Input, output and errors are a terminal, on which somebody types y again and again."""
    folders = []
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


def test_nowhere_is_remote_code_left_to_a_default() -> None:
    """Where it is not said, transformers asks."""
    calls = []
    for file in sorted(Path(rho_eos.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr != "from_pretrained" or ast.unparse(node.func.value) == "super()":
                continue
            said = {word.arg: ast.unparse(word.value) for word in node.keywords}
            calls.append((file.name, node.lineno, said.get("trust_remote_code")))
    assert len(calls) >= 2
    assert [call for call in calls if call[2] != "False"] == []
