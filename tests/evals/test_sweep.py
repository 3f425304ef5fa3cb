"""Sweeps: the grid's product and its names, the tidy table, and the picture of what runs cost."""

import csv
import itertools
import json
from pathlib import Path

import pytest

from rho_eos.base.errors import UserError
from rho_eos.evals.runs.report import summarise
from rho_eos.evals.runs.sweep import read_sweep
from rho_eos.evals.studies.pareto import front
from tests.evals.command import Command
from tests.evals.runs import line, write_run
from tests.evals.scripted import rows_of


def sweep(folder: Path, text: str) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(text)
    return path


def test_a_grid_is_the_product_of_its_values_with_names_made_of_them(tmp_path: Path) -> None:
    path = sweep(
        tmp_path,
        "policies:\n  wide: {preset: sym}\n  long: {policy: fixed, initial_length: 32}\n"
        "grid:\n  cache: [none, window]\n  threshold: [0.9, 0.999]\n",
    )
    found = read_sweep(path, {"max_new_tokens": 64})
    values = itertools.product(("wide", "long"), ("none", "window"), (0.9, 0.999))
    assert list(found) == [f"{name}_{cache}_threshold-{tau}" for name, cache, tau in values]
    params, model = found["long_window_threshold-0.9"]
    assert params is not None and model is None
    assert (params.policy, params.cache, params.initial_length) == ("fixed", "window", 32)
    assert params.max_new_tokens == 64  # of the command line


def test_what_a_policy_does_not_have_does_not_concern_it(tmp_path: Path) -> None:
    path = sweep(
        tmp_path, "grid:\n  policy: [fixed, rho-eos]\n  preset: [sym, asym]\n  model: [a/b, c]\n"
    )
    names = ["fixed_a-b", "fixed_c"]
    names += [f"rho-eos_{preset}_{model}" for preset in ("sym", "asym") for model in ("a-b", "c")]
    found = read_sweep(path, {})
    assert list(found) == names and found["fixed_a-b"][1] == "a/b"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("grid: {treshold: [0.9]}", "did you mean 'threshold'"),
        ("grid: {threshold: []}", "no value for threshold"),
        ("grid: {policy: [fixed], preset: [sym]}", "none of its policies has the parameter"),
        ("grid: {initial_length: [16, x]}", "initial_length-x: initial_length is 'x'"),
        ("policies: {a: {}}\nextra: 1", "takes policies"),
        ("policies: {}", "mapping of names"),
        ("grid: [1]", "grid takes a mapping"),
    ],
)
def test_what_is_wrong_with_a_grid_is_said(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says):
        read_sweep(sweep(tmp_path, text), {})


def test_models_are_an_axis_and_the_tidy_table_holds_numbers(
    command: Command, tmp_path: Path
) -> None:
    path = sweep(tmp_path, "grid: {model: [tiny, terse], initial_length: [8, 16]}")
    words = ("--tasks", "tiny-gsm,tiny-math", "--limit", 1, "--max-new-tokens", 16)
    result = command("eval", "--sweep", path, *words, "--out", tmp_path / "out")
    assert result.code == 0, result.err
    rows = rows_of(tmp_path / "out" / "tidy.csv")
    assert [(row["run"], row["task"]) for row in rows] == [
        (f"{model}_initial_length-{length}", task)
        for model, length in itertools.product(("tiny", "terse"), (8, 16))
        for task in ("tiny-gsm", "tiny-math")
    ]
    assert {row["model"] for row in rows} == {"tiny", "terse"}
    assert len({row["weights"] for row in rows}) == 2
    assert [float(row["initial_length"]) for row in rows] == [8, 8, 16, 16] * 2
    for row in rows:
        low, high = float(row["accuracy_low"]), float(row["accuracy_high"])
        assert 0 <= low <= float(row["accuracy"]) <= high <= 1 and low < high
        assert float(row["nfe"]) > 0 and row["policy"] == "rho-eos"


def test_a_comparison_writes_the_tidy_table_of_its_runs(command: Command, tmp_path: Path) -> None:
    write_run(tmp_path / "a", [line(n, nfe=n + 1) for n in range(3)], initial_length=8)
    write_run(tmp_path / "b", [line(n) for n in range(3)], policy="fixed", stop=["x"])
    assert command("compare", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "o").code == 0
    first, second = rows_of(tmp_path / "o" / "tidy.csv")
    assert (first["run"], float(first["nfe"]), int(first["samples"])) == ("a", 2, 3)
    assert json.loads(second["stop"]) == ["x"] and second["preset"] == ""


def test_the_front_holds_the_runs_that_no_other_one_beats() -> None:
    costs = {"cheap": (10, 2), "good": (30, 5), "beaten": (40, 4), "dear": (90, 6), "bad": (20, 2)}
    points = [
        (name, summarise([line(n, correct=n < right, nfe=cost) for n in range(8)])[0])
        for name, (cost, right) in costs.items()
    ]
    assert [name for name, _ in front(points, "NFE")] == ["cheap", "good", "dear"]


def test_a_sweep_is_drawn_and_each_panel_on_request(command: Command, tmp_path: Path) -> None:
    for name, cost in (("a", 3), ("b", 9)):
        lines = [line(n, nfe=cost, task=task) for n in range(4) for task in ("one", "two")]
        write_run(tmp_path / "sweep" / name, lines)
    figure = tmp_path / "pareto.pdf"
    words = ("compare", tmp_path / "sweep", "--figure", figure, "--cost", "NFE", "--panels")
    assert command(*words).code == 0
    files = [figure, *(tmp_path / f"pareto-{panel}.pdf" for panel in (1, 2))]
    assert all(path.read_bytes().startswith(b"%PDF") for path in files)
    wrong = command("compare", tmp_path / "sweep", "--figure", tmp_path / "x.gif")
    assert wrong.code == 2 and ".pdf" in wrong.err
    wrong = command("compare", tmp_path / "sweep", "--figure", figure, "--cost", "time")
    assert wrong.code == 2 and "NFE" in wrong.err


def test_no_file_has_a_ragged_row(command: Command, tmp_path: Path) -> None:
    write_run(tmp_path / "a", [line(0, score=0.5)])
    write_run(tmp_path / "b", [line(0)])
    command("compare", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "o")
    with (tmp_path / "o" / "tidy.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert {len(row) for row in rows} == {len(head)} and len(set(head)) == len(head)
