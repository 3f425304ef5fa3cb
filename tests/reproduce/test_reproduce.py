"""One command per table: everything is made, shared, kept, and made of what was really run."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rho_eos.base.errors import UserError
from rho_eos.config import EngineConfig
from rho_eos.evals.studies.study import Study
from rho_eos.evals.tasks.embedded import TinyNumbers
from rho_eos.reproduce.plan import plan_figures, plan_tables
from rho_eos.reproduce.profiles import PAPER, TINY, choose_profile
from rho_eos.reproduce.run import FIGURE_TITLES, TABLE_TITLES, reproduce
from tests.checkpoints import write_checkpoint
from tests.evals.command import Command
from tests.evals.scripted import Script, Watch
from tests.reproduce.small import SMALL

METRICS = {"n", "Acc %", "E_token", "N_token", "E_ratio %", "NFE", "positions", "Step", "seconds"}


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def small_study(checkpoint: Path, out: Path, **more: Any) -> Study:
    config = EngineConfig(model=str(checkpoint), device="cpu")
    return Study(config=config, folder=out, **{"limit": 2} | more)


def run(study: Study, source: Script, target: str = "all") -> Watch:
    watch = Watch()
    tables, figures = plan_tables(target, SMALL, []), plan_figures(target, SMALL, [])
    reproduce(study, SMALL, tables, figures, source.open, watch)
    return watch


def test_a_task_that_says_it_has_changed_gets_cells_of_its_own(
    byte_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = small_study(byte_checkpoint, tmp_path)
    [plan] = plan_tables("signals", SMALL, [])
    before = {cell.folder for cell in study.cells([plan])}
    assert {cell.folder for cell in study.cells([plan])} == before
    monkeypatch.setattr(TinyNumbers, "identity", lambda _: {"version": 2})
    assert not {cell.folder for cell in study.cells([plan])} & before


def test_a_model_gives_all_tables_and_figures_and_again_without_being_loaded(
    command: Command, ending_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    words = ("reproduce", "all", "-m", ending_checkpoint, "--profile", "small")
    words = (*words, "--limit", "2", "--out", out)
    first = command(*words)
    assert first.code == 0, first.err
    assert "; needs " in first.err and first.out.rstrip().endswith("index.md")

    for name in TABLE_TITLES:
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
    assert main["fixed 4, one token a step"]["NFE"] == "4.0"  # one sample: no standard error
    assert main["fixed 8, τ rule"]["N_token"] == "8.0 ± 0.0"

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


def test_what_decides_the_results_decides_the_folder(tmp_path: Path) -> None:
    one, other = (write_checkpoint(tmp_path / f"{seed}", seed=seed) for seed in (1, 2))
    plans = plan_tables("main", SMALL, [])

    def folders(checkpoint: Path, **more: Any) -> set[Path]:
        study = small_study(checkpoint, tmp_path / "out", **more)
        return {cell.folder for cell in study.cells(plans)}

    usual = folders(one)
    assert folders(one) == usual
    for different in (folders(other), folders(one, repeats=2), folders(one, shuffle_seed=1)):
        assert not different & usual
    assert len(folders(one, limit=3) & usual) == 1  # one token a step has one sample either way


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
    cells = study.cells(plan_tables("main", SMALL, []))
    answers = [line["id"] for cell in cells for line in cell.lines()]
    assert interruptions >= 2 and len(answers) == sum(cell.samples for cell in cells) == 13
    assert len(asked) <= len(answers) + interruptions  # at most the one that was being graded
    assert (tmp_path / "out" / "main.md").exists()


def test_interrupted_the_command_says_how_to_go_on(
    command: Command, byte_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rho_eos.evals.runs.sources.ModelAnswers", lambda _: Script(stop_after=3))
    words = ("reproduce", "main", "-m", byte_checkpoint, "--profile", "small", "--limit", "2")
    stopped = command(*words, "--out", tmp_path / "out")
    assert stopped.code == 130 and "run the same command again to continue" in stopped.err
    assert not (tmp_path / "out" / "main.md").exists()


def test_a_dry_run_counts_and_leaves_nothing(
    command: Command, byte_checkpoint: Path, tmp_path: Path
) -> None:
    words = ("reproduce", "main", "-m", byte_checkpoint, "--profile", "small", "--limit", "2")
    result = command(*words, "--dry-run", "--out", tmp_path / "out")
    assert result.code == 0 and "0 of 7 cells are finished" in result.out
    [row] = [line for line in result.out.splitlines() if "one token a step" in line]
    assert row.endswith("0 of 1") and "; 13 answers are missing" in result.out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["maine"], "reproduce got 'maine', but takes one of main, init-length, thresholds"),
        (["main", "--tasks", "gsm9k"], "task is 'gsm9k', but takes one of gsm8k"),
        (["main", "--limit", "0"], "limit is 0, but takes an integer of at least 1"),
        (["main", "--repeats", "0"], "repeats is 0, but takes an integer of at least 1"),
        (["main", "--profile", "large"], "profile is 'large', but takes one of paper, tiny"),
        (["main", "--model", "/none"], "no such model"),
        (["main", "--tasks", "gsm8k", "--data", "/no/x.jsonl"], "cannot read /no/x.jsonl"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_folder(
    words: list[str], message: str, command: Command, tmp_path: Path
) -> None:
    result = command("reproduce", *words, "--out", tmp_path / "out")
    assert result.code == 2 and message in result.err and result.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


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
    plans = plan_tables("thresholds", SMALL, ["tiny-math", "tiny-mbpp"])
    with pytest.raises(UserError, match="no sandbox"):
        reproduce(study, SMALL, plans, [], source.open, Watch())
    assert source.opened == 0 and not (tmp_path / "out").exists()


def test_the_embedded_model_is_asked_for_a_quarter_of_the_papers_lengths() -> None:
    assert choose_profile("tiny", None) is TINY
    assert choose_profile("GSAI-ML/LLaDA-1.5", None) is PAPER
    assert choose_profile("my/own", "tiny") is TINY
    assert [4 * length for length in TINY.lengths] == list(PAPER.lengths)
    assert (PAPER.lengths[0], PAPER.lengths[-1]) == (64, 2048)
