"""`rho-eos models` on caches that the real client filled, and on those that it did not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants

from rho_eos.models.cached import fitting
from rho_eos.models.known import EMBEDDED
from tests.hub import Hub, Repo
from tests.models.conftest import GENERATE, MODEL, Run, refused


def listed(run: Run) -> dict[str, dict[str, object]]:
    ran = run("models", "--json")
    assert (ran.code, ran.err) == (0, "")
    return {each["model"]: each for each in json.loads(ran.out)}


def test_without_a_cache_there_is_the_embedded_model_and_a_friendly_line(
    run: Run, cache: Path
) -> None:
    assert list(listed(run)) == list(EMBEDDED)
    shown = run("models")
    assert shown.code == 0 and "tiny" in shown.out
    assert shown.out.count("There are no Hub models") == 1
    cache.mkdir(parents=True)
    assert list(listed(run)) == list(EMBEDDED)


def test_a_model_is_partial_until_its_weights_are_there(hub: Hub, run: Run) -> None:
    assert run("info", MODEL).code == 0
    commit = hub.repos[MODEL].names["main"]
    partial = listed(run)[MODEL]
    assert (partial["family"], partial["complete"], partial["missing_files"]) == ("llada", False, 3)
    assert (partial["revision"], partial["names"]) == (commit, ["main"])
    assert "llada; 0.0 MiB on disk; partial: 0 of 3 weight files" in run("models").out
    assert run(*GENERATE, MODEL).code == 0
    models = listed(run)
    assert list(models) == [*EMBEDDED, MODEL]
    whole = models[MODEL]
    assert whole["complete"] and whole["bytes"] > partial["bytes"]
    assert whole["parameters"] == 758_016 and partial["parameters"] is None
    assert whole["fits"] == {"float32": True, "bfloat16": True, "int8": True, "int4": True}
    assert "There are no Hub models" not in run("models").out


def test_other_models_and_damaged_ones_are_listed_all_the_same(hub: Hub, run: Run) -> None:
    files = {"config.json": b'{"model_type": "bert"}', "model.safetensors": b"garbage"}
    hub.repos["someone/bert"] = Repo({"c" * 40: files}, {"main": "c" * 40})
    assert run("info", "someone/bert").code == 2
    found = listed(run)["someone/bert"]
    assert found["family"] is None and not found["complete"]
    assert "not a masked diffusion model we know" in run("models").out


def test_a_cache_that_is_a_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", os.fspath(tmp_path / "file"))
    assert "it is no folder" in refused(run, "models")


COMMAND = """
import sys
from rho_eos import cli
try:
    cli.main()
finally:
    print(*sys.modules)
"""


@pytest.mark.parametrize("words", [("info", "tiny"), ("models",)])
def test_what_only_describes_models_imports_no_layers(words: tuple[str, ...]) -> None:
    """They take more than a second to import."""
    ran = subprocess.run(
        [sys.executable, "-c", COMMAND, *words], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    heavy = {"transformers.modeling_utils", "transformers.activations", "torch._dynamo"}
    assert not heavy & set(ran.stdout.split())


def test_what_fits() -> None:
    eight_billion, gib = 8_000_000_000, 2**30
    assert [name for name, fits in fitting(eight_billion, 5 * gib).items() if fits] == ["int4"]
    assert fitting(eight_billion, 16 * gib)["bfloat16"]
    assert not fitting(eight_billion, 24 * gib)["float32"]
