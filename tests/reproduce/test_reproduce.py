"""One command per table: everything is made, shared, kept, and made of what was really run."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from rho_eos.base.errors import UserError
from rho_eos.evals.studies.study import Study
from rho_eos.evals.tasks.embedded import TinyNumbers
from rho_eos.reproduce.plan import PAPER, TINY, choose_profile, make_plans
from rho_eos.reproduce.tables import FIGURE_TITLES, TITLES, reproduce
from tests.checkpoints import write_checkpoint
from tests.evals.command import Command
from tests.evals.scripted import Script, Watch, rows_of, study_of
from tests.reproduce.small import SMALL

METRICS = {"n", "Acc %", "E_token", "N_token", "E_ratio %", "NFE", "positions", "Step", "seconds"}


def small_study(checkpoint: Path, out: Path, **which: int) -> Study:
    return study_of(checkpoint, out, **{"limit": 2} | which)


def run(study: Study, source: Script, target: str = "all", *tasks: str) -> Watch:
    watch, plans = Watch(), make_plans(target, SMALL, tasks)
    reproduce(study, SMALL, plans, study.run(plans, source.open, watch))
    return watch


def folders(study: Study, target: str = "main") -> set[Path]:
    return {cell.folder for cell in study.cells(make_plans(target, SMALL, []))}


def test_a_model_gives_all_tables_and_figures_and_again_without_being_loaded(
    command: Command, ending_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    words = ("reproduce", "all", "-m", ending_checkpoint, "--profile", "small")
    words = (*words, "--limit", "2", "--out", out)
    first = command(*words)
    assert first.code == 0, first.err
    assert "; needs " in first.err and first.out.rstrip().endswith("index.md")

    for name in TITLES:
        rows = rows_of(out / f"{name}.csv")
        assert rows and all(None not in row and None not in row.values() for row in rows)
        latex = (out / f"{name}.tex").read_text()
        body = [line for line in latex.splitlines() if line.endswith(r"\\")]
        assert len(body) == len(rows) + 1 and len({line.count("&") for line in body}) == 1
        assert not re.search(r"(?<!\\)[%#]|[ρτ±×]", latex)
        assert "tiny-math" in (out / f"{name}.md").read_text()
        told = json.loads((out / f"{name}.json").read_text())
        assert [dict(zip(told["columns"], row, strict=True)) for row in told["rows"]] == rows
    main = {row["policy"]: row for row in rows_of(out / "main.csv")}
    assert set(next(iter(main.values()))) >= METRICS
    assert list(main) == [
        "fixed 4, one token a step",
        *("fixed 4, τ rule", "fixed 8, τ rule", "fixed 16, τ rule"),
        *("DAEDAL", "ρ-EOS Sym", "ρ-EOS Asym"),
    ]
    assert main["fixed 4, one token a step"]["NFE"] == "4.0"
    assert main["fixed 8, τ rule"]["N_token"] == "8.0"

    from matplotlib.image import imread

    for name in FIGURE_TITLES:
        picture = imread(out / f"{name}.png")
        assert min(picture.shape[:2]) > 400 and np.std(picture) > 0.02
        assert "<text" in (out / f"{name}.svg").read_text()
    index = (out / "index.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", index)
    assert len(links) > 20 and all((out / link).exists() for link in links)

    def no_model(**_: object) -> None:
        raise AssertionError("everything is there")

    monkeypatch.setattr("rho_eos.llm.LLM", no_model)
    tables = {path: path.read_bytes() for path in out.glob("*.csv")}
    again = command(*words)
    assert again.code == 0 and again.out == first.out
    assert {path: path.read_bytes() for path in out.glob("*.csv")} == tables
    dry = command(*words, "--dry-run")
    assert "; 0 answers are missing" in dry.out


def test_tables_share_cells(
    byte_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rho_eos.reproduce.figures.write_figures", lambda *_: None)  # takes long
    study, source = small_study(byte_checkpoint, tmp_path / "out"), Script()
    assert len(run(study, source, "main").ran) == 7
    assert len(run(study, source, "thresholds").ran) == 2  # Sym and Asym are the main table's
    assert len(run(study, source, "signals").ran) == 2  # so are DAEDAL and ρ-EOS Asym
    assert len(run(study, source, "expansion").ran) == 2  # exponential is the region [0.4, 0.6]
    assert len(run(study, source, "init-length").ran) == 3
    assert len(run(study, source, "figures").ran) == 4  # with a trace, from two lengths each
    assert run(study, source, "all").ran == []
    assert source.opened == 7 + 2 + 2 + 2 + 3 + 4


def test_what_decides_the_results_decides_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (write_checkpoint(tmp_path / f"{seed}", seed=seed) for seed in (1, 2))
    usual = folders(small_study(one, tmp_path))
    assert folders(small_study(one, tmp_path)) == usual
    for which in ({"limit": 3}, {"repeats": 2}, {"shuffle_seed": 1}):
        assert not folders(small_study(one, tmp_path, **which)) & usual
    assert not folders(small_study(other, tmp_path)) & usual
    monkeypatch.setattr(TinyNumbers, "identity", lambda _: {"version": 2})
    assert not folders(small_study(one, tmp_path)) & usual


def test_interrupted_again_and_again_nothing_is_lost_or_asked_twice(
    byte_checkpoint: Path, tmp_path: Path
) -> None:
    study, asked, interruptions = small_study(byte_checkpoint, tmp_path / "out"), [], 0
    while True:
        source = Script(stop_after=5)
        try:
            run(study, source, "main")
            break
        except KeyboardInterrupt:
            interruptions += 1
        finally:
            asked += source.asked
    cells = study.cells(make_plans("main", SMALL, []))
    answers = [line["id"] for cell in cells for line in cell.lines()]
    assert interruptions >= 2 and len(answers) == sum(cell.samples for cell in cells) == 14
    assert len(asked) <= len(answers) + interruptions  # at most the one that was being graded
    assert (tmp_path / "out" / "main.md").exists()


def test_a_folder_holds_one_model(tmp_path: Path) -> None:
    one, other = (write_checkpoint(tmp_path / name) for name in ("one", "other"))
    run(small_study(one, tmp_path / "out"), Script(), "thresholds")
    about = json.loads((tmp_path / "out" / "study.json").read_text())
    assert about["model"] == str(one)
    with pytest.raises(UserError, match=r"holds a study of .*one, not of .*other"):
        run(small_study(other, tmp_path / "out"), Script(), "thresholds")


def test_a_missing_sandbox_is_noticed_before_anything_is_asked(
    byte_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_sandbox(_: bool) -> None:
        raise UserError("no sandbox")

    monkeypatch.setattr("rho_eos.evals.studies.study.find_sandbox", no_sandbox)
    study, source = small_study(byte_checkpoint, tmp_path / "out"), Script()
    with pytest.raises(UserError, match="no sandbox"):
        run(study, source, "thresholds", "tiny-math", "tiny-mbpp")
    assert source.opened == 0 and not (tmp_path / "out").exists()


def test_the_embedded_model_is_asked_for_a_quarter_of_the_papers_lengths() -> None:
    assert choose_profile("tiny", None) is TINY
    assert choose_profile("GSAI-ML/LLaDA-1.5", None) is PAPER
    assert choose_profile("my/own", "tiny") is TINY
    assert [4 * length for length in TINY.lengths] == list(PAPER.lengths)
