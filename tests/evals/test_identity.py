"""Code from outside is part of what a run is: an edited plug-in never reports old numbers."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from rho_eos.config import EngineConfig
from rho_eos.evals.runs.provenance import model_identity
from rho_eos.models.families.llada import LLaDAConfig
from rho_eos.models.loading import open_checkpoint
from tests import forks

FILES = {
    "policy": """
from rho_eos import Policy, Step, register_policy

@register_policy
class Mine(Policy):
    name = "mine"
    def step(self, canvas, prediction, commit):
        return Step()
""",
    "commit": """
import numpy as np
from rho_eos import CommitRule, register_commit

@register_commit
class Mine(CommitRule):
    name = "mine"
    def __call__(self, canvas, candidates):
        return candidates.positions[:1]
""",
    "cache": """
from rho_eos import register_cache
from rho_eos.decoding.caches.window import Window

@register_cache
class Mine(Window):
    name = "mine"
""",
    "task": """
from rho_eos.evals import Grade, Sample, Task, register_task

@register_task
class Mine(Task):
    name = "mine"
    def load(self, path=None, limit=None):
        return [Sample(f"mine/{k}", {}) for k in range(limit or 2)]
    def prompt(self, sample):
        return "Eva has 7 keys. 1) wins 8. How many are there now?"
    def gold(self, sample):
        return "#### 15"
    def grade(self, sample, text):
        return Grade("15" in text, text, "")
""",
}
SHORT = ("--initial-length", 8, "--max-new-tokens", 8)


def rho_eos(*words: object) -> Any:
    return forks.run("-m", "rho_eos", *words)


def test_a_run_of_edited_files_is_not_continued(tmp_path: Path) -> None:
    words: list[object] = ["eval", "--limit", 2, "--out", tmp_path / "run", *SHORT]
    for kind, text in FILES.items():
        (tmp_path / f"{kind}.py").write_text(text)
        words += ["--plugin", tmp_path / f"{kind}.py"]
        words += ["--tasks" if kind == "task" else f"--{kind}", "mine"]
    first = rho_eos(*words)
    assert first.returncode == 0, first.stderr
    for kind, text in FILES.items():
        (tmp_path / f"{kind}.py").write_text(text + "# another thought\n")
        edited = rho_eos(*words)
        assert edited.returncode == 2 and f"code of {kind} mine" in edited.stderr
        assert "give another --out" in edited.stderr and not edited.stdout
        (tmp_path / f"{kind}.py").write_text(text)
    again = rho_eos(*words)
    assert again.returncode == 0 and again.stdout == first.stdout


def test_outputs_of_an_edited_file_are_not_continued(tmp_path: Path) -> None:
    plugin, prompts, out = (tmp_path / name for name in ("mine.py", "in.jsonl", "out.jsonl"))
    plugin.write_text(FILES["policy"])
    prompts.write_text(json.dumps({"prompt": "Eva has 7 keys. How many are there?"}) + "\n")
    words = ("generate", "--plugin", plugin, "--policy", "mine", *SHORT, "-i", prompts, "-o", out)
    assert rho_eos(*words).returncode == 0
    assert rho_eos(*words).returncode == 0
    plugin.write_text(FILES["policy"] + "# another thought\n")
    edited = rho_eos(*words)
    assert edited.returncode == 2 and "code of policy mine" in edited.stderr


def test_a_package_counts_whole(tmp_path: Path) -> None:
    """A policy may stand in one module of a package and be what another one makes of it."""
    package = tmp_path / "outside_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text("PIECE = 1\n")
    (package / "mine.py").write_text("from . import helper\n" + FILES["policy"])
    words = ("eval", "--limit", 1, "--plugin", "outside_package.mine", "--policy", "mine", *SHORT)
    words += ("--tasks", "tiny-gsm", "--out", tmp_path / "run")
    code = "import sys; sys.path.insert(0, {!r}); sys.argv[1:] = {!r}\n"
    code += "from rho_eos.cli import main; main()"
    run = code.format(str(tmp_path), [str(word) for word in words])
    first = forks.run("-c", run)
    assert first.returncode == 0, first.stderr
    (package / "helper.py").write_text("PIECE = 2\n")
    edited = forks.run("-c", run)
    assert edited.returncode == 2 and "code of policy mine" in edited.stderr


def test_a_family_from_outside_is_part_of_a_models_identity(byte_checkpoint: Path) -> None:
    class Outside(LLaDAConfig):
        """Of this module, and so of no module of ours."""

    config = EngineConfig(model=str(byte_checkpoint), device="cpu")
    checkpoint = open_checkpoint(config)
    family = dataclasses.replace(checkpoint.family, config=Outside)
    ours = model_identity(config, checkpoint)
    theirs = model_identity(config, dataclasses.replace(checkpoint, family=family))
    assert set(theirs) - set(ours) == {"code of the family"}
    assert {name: theirs[name] for name in ours} == ours
