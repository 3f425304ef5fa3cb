"""The paper's numbers stand beside ours where the model is one of the paper's, and nowhere else."""

import dataclasses
from pathlib import Path

from rho_eos.reproduce.plan import PAPER, make_plans
from rho_eos.reproduce.tables import reproduce
from tests.checkpoints import write_checkpoint
from tests.evals.fixtures import FOLDER
from tests.evals.scripted import Script, Watch, rows_of, study_of


def make(model: Path, table: str) -> dict[str, dict[str, str]]:
    """Rows of a table for GSM8K, by their names."""
    out = model / "out"
    data = {"gsm8k": FOLDER / "gsm8k.jsonl"}
    study = dataclasses.replace(study_of(model, out, limit=1), data=data)
    plans = make_plans(table, PAPER, ["gsm8k"])
    reproduce(study, PAPER, plans, study.run(plans, Script().open, Watch()))
    return {next(iter(row.values())): row for row in rows_of(out / f"{table}.csv")}


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


def test_beside_llada_15_but_not_beside_another_model(tmp_path: Path) -> None:
    sym = make(write_checkpoint(tmp_path / "models--GSAI-ML--LLaDA-1.5" / "snapshots"), "main")[
        "ρ-EOS Sym"
    ]
    assert (sym["paper Acc %"], sym["paper seconds"]) == ("83.3", "721")
    assert "paper N_token" not in sym
    model = write_checkpoint(tmp_path / "LLaDA-8B-Instruct-finetuned")
    assert not any("paper" in column for column in make(model, "thresholds")["[0.2, 0.8]"])
