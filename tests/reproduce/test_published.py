"""The paper's numbers stand beside ours where the model is one of the paper's, and nowhere else."""

import csv
from pathlib import Path

import pytest

from rho_eos.config import EngineConfig
from rho_eos.evals.studies.study import Study
from rho_eos.reproduce.plan import plan_tables
from rho_eos.reproduce.profiles import PAPER
from rho_eos.reproduce.published import paper_model
from rho_eos.reproduce.run import reproduce
from tests.checkpoints import write_checkpoint
from tests.evals.fixtures import FOLDER
from tests.evals.scripted import Script, Watch


def make(model: Path, table: str) -> dict[str, dict[str, str]]:
    """Rows of a table for GSM8K, by their names."""
    out = model / "out"
    config = EngineConfig(model=str(model), device="cpu")
    data = {"gsm8k": FOLDER / "gsm8k.jsonl"}
    study = Study(config=config, folder=out, limit=1, data=data)
    reproduce(study, PAPER, plan_tables(table, PAPER, ["gsm8k"]), [], Script().open, Watch())
    with (out / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        return {next(iter(row.values())): row for row in csv.DictReader(file)}


def test_beside_the_instruct_model(tmp_path: Path) -> None:
    model = write_checkpoint(tmp_path / "LLaDA-8B-Instruct")
    main = make(model, "main")
    asym = main["ρ-EOS Asym"]
    columns = list(asym)
    assert columns[columns.index("Acc %") + 1] == "paper Acc %"
    assert (asym["paper Acc %"], asym["paper E_token"], asym["paper N_token"]) == (
        *("84.2", "252.5", "361.0"),
    )
    assert (asym["paper E_ratio %"], asym["paper seconds"]) == ("70.0", "823")
    assert "paper Step" not in asym  # the main table has none
    assert main["fixed 1024, one token a step"]["paper Acc %"] == "83.9"
    assert main["fixed 1024, τ rule"]["paper Acc %"] == "–"
    assert "arXiv 2601.22527" in (model / "out" / "main.md").read_text()

    expansion = make(model, "expansion")
    assert {name: row["paper Step"] for name, row in expansion.items()} == {
        "constant": "61.0",
        "linear": "54.8",
        "exponential": "52.4",
    }
    thresholds = make(model, "thresholds")
    assert thresholds["[0.3, 0.7]"]["paper Acc %"] == "81.7"
    signals = make(model, "signals")
    assert [row["paper Acc %"] for row in signals.values()] == ["73.7", "84.2", "84.6", "84.4"]


def test_beside_llada_15(tmp_path: Path) -> None:
    main = make(write_checkpoint(tmp_path / "LLaDA-1.5"), "main")
    assert main["ρ-EOS Sym"]["paper Acc %"] == "83.3"
    assert main["ρ-EOS Sym"]["paper seconds"] == "721"
    assert "paper N_token" not in main["ρ-EOS Sym"]


def test_not_beside_another_model(tmp_path: Path) -> None:
    model = write_checkpoint(tmp_path / "my-LLaDA")
    assert not any("paper" in column for column in make(model, "thresholds")["[0.2, 0.8]"])


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("GSAI-ML/LLaDA-8B-Instruct", "LLaDA-8B-Instruct"),
        ("/models/llada-8b-instruct", "LLaDA-8B-Instruct"),
        ("/hub/models--GSAI-ML--LLaDA-1.5/snapshots/0123", "LLaDA-1.5"),
        ("GSAI-ML/LLaDA-8B-Base", None),
        ("someone/LLaDA-8B-Instruct-finetuned", None),
        ("tiny", None),
    ],
)
def test_models_are_known_by_name(model: str, known: str | None) -> None:
    assert paper_model(model) == known
