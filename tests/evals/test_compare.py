"""Paired tests, against enumeration and textbook values, and the command."""

import csv
import io
import itertools
import random
import statistics
from pathlib import Path

import pytest

from rho_eos.evals.runs.compare import compare
from rho_eos.evals.runs.stats import ratio_interval, share_change, share_of, sign_test
from tests.evals.command import Command
from tests.evals.runs import line, write_run


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (3, 3), (5, 1), (0, 6), (2, 7)])
def test_the_sign_test_is_the_count_of_all_coin_throws_as_uneven(wins: int, losses: int) -> None:
    throws = list(itertools.product((0, 1), repeat=wins + losses))
    uneven = [abs(2 * sum(throw) - len(throw)) >= abs(wins - losses) for throw in throws]
    assert sign_test(wins, losses) == pytest.approx(sum(uneven) / len(throws))
    assert 0 < sign_test(900, 1100) < 1e-4  # exact for thousands of samples, too


def test_intervals_of_costs_are_those_of_the_normal_law_and_draw_pairs_together() -> None:
    rng = random.Random(0)
    values = [rng.gauss(10, 3) for _ in range(400)]
    mean, error = statistics.mean(values), statistics.stdev(values) / 20
    normal = (mean - 1.96 * error, mean + 1.96 * error)
    assert ratio_interval(values, [1.0] * 400) == pytest.approx(normal, abs=0.2 * error)
    costs = [1.0, 10.0, 100.0, 1000.0]
    assert ratio_interval([cost / 2 for cost in costs], costs) is None  # every pair says the same
    assert ratio_interval([3.0], [1.0]) is None


def paired(both: int, first: int, second: int, neither: int) -> tuple[list[float], list[float]]:
    """Right and wrong answers of two runs to the same samples, as a 2x2 table counts them."""
    ours = [1.0] * (both + first) + [0.0] * (second + neither)
    theirs = [1.0] * both + [0.0] * first + [1.0] * second + [0.0] * neither
    return ours, theirs


@pytest.mark.parametrize(
    ("table", "interval"),
    [
        # Newcombe (1998), Statistics in Medicine 17, table II: method 10.
        ((20, 12, 2, 16), (0.0562, 0.3292)),
        # Fagerland, Lydersen, Laake (2014), BMC Medical Research Methodology 13: airways.
        ((1, 1, 7, 12), (-0.507, -0.026)),
    ],
)
def test_the_interval_of_a_change_of_accuracy_is_the_published_one(
    table: tuple[int, int, int, int], interval: tuple[float, float]
) -> None:
    assert share_change(*paired(*table)).interval == pytest.approx(interval, abs=6e-4)


def test_no_interval_of_a_share_is_a_point_and_nineteen_of_twenty_hold_the_truth() -> None:
    assert share_of([1.0] * 10).interval == pytest.approx((0.7225, 1.0), abs=1e-4)  # Wilson's
    assert share_of([1.0]).interval == pytest.approx((0.2065, 1.0), abs=1e-4)
    low, high = share_change(*paired(50, 0, 0, 0)).interval or (0, 0)
    assert low < -0.05 and high > 0.05
    rng, count, held = random.Random(1), 12, 0
    for _ in range(400):
        truth = rng.uniform(0.05, 0.95)
        low, high = share_of([float(rng.random() < truth) for _ in range(count)]).interval or (0, 0)
        held += low <= truth <= high
    assert 0.92 < held / 400 < 0.98


def test_repeats_make_an_interval_narrower_than_the_samples_alone_but_not_than_all_answers() -> (
    None
):
    half = [0.5, 0.25, 0.75, 0.5, 0.5, 0.5, 0.25, 0.75]  # eight samples, each asked four times
    widths = [
        high - low
        for values in ([1.0, 0.0] * 4, half, [1.0, 0.0] * 80)
        for low, high in [share_of(values).interval or (0, 0)]
    ]
    assert widths[0] > widths[1] > widths[2]


def test_a_comparison_counts_what_only_one_got_right_and_what_is_cheaper() -> None:
    base = [line(n, correct=n < 6, nfe=10) for n in range(10)]
    ours = [line(n, correct=n != 5, nfe=5 if n else 20) for n in range(12)]
    cached = [each | {"positions_evaluated": 50, "positions_exact": 120} for each in ours]
    accuracy, nfe, *others = compare(ours, base)
    assert (accuracy.samples, accuracy.better, accuracy.worse, accuracy.p) == (10, 4, 1, 0.375)
    assert accuracy.change == pytest.approx(0.3)
    assert nfe.change == pytest.approx(65 / 100) and (nfe.better, nfe.worse) == (9, 1)
    assert nfe.p == 0.021484375  # a textbook value of McNemar's exact test
    assert "exact" not in {change.metric for change in others}
    changes = {change.metric: change.change for change in compare(cached, base)}
    assert changes["positions"] == 0.5 and changes["exact"] == 1.2
    assert compare([line(9)], [line(1)]) == []


def test_the_command_shows_runs_and_tests_in_every_form(command: Command, tmp_path: Path) -> None:
    fixed = write_run(tmp_path / "all/fixed", [line(n, correct=n < 5, nfe=20) for n in range(10)])
    asym = write_run(tmp_path / "all/asym", [line(n, nfe=5) for n in range(10)])
    shown = command("compare", fixed, asym, "--out", tmp_path / "tables")
    assert shown.code == 0 and "50.0 [23.7, 76.3]" in shown.out and "×0.25" in shown.out
    runs, tests = command("compare", fixed, asym, "-f", "csv").out.split("\n\n")
    [row] = [row for row in csv.DictReader(io.StringIO(tests)) if row["metric"] == "Acc"]
    assert (row["run"], row["against"]) == ("asym", "fixed")
    assert (row["change"], row["better"], row["worse"], row["p"]) == ("+50.0", "5", "0", "0.062")
    assert [each["run"] for each in csv.DictReader(io.StringIO(runs))] == ["fixed", "asym"]
    assert (tmp_path / "tables" / "tests.tex").exists()
    sweep = command("compare", tmp_path / "all", "-f", "markdown").out  # stands for its runs
    assert "| fixed | asym | tiny-gsm | NFE |" in sweep


def test_where_nothing_differed_there_is_a_dash_and_no_certainty(
    command: Command, tmp_path: Path
) -> None:
    for name in ("one", "other"):
        write_run(tmp_path / name, [line(n) for n in range(5)])
    out = command("compare", tmp_path / "one", tmp_path / "other", "-f", "csv").out
    table = {row["metric"]: row for row in csv.DictReader(io.StringIO(out.split("\n\n")[1]))}
    assert table["Acc"]["p"] == "–" and table["Acc"]["change"] == "+0.0"
    low, high = map(float, table["Acc"]["95%"].split(" to "))
    assert low < -30 and high > 30  # five samples exclude little
    assert (table["NFE"]["change"], table["NFE"]["95%"], table["NFE"]["p"]) == ("×1.00", "–", "–")


def test_any_run_can_be_the_one_that_others_are_tested_against(
    command: Command, tmp_path: Path
) -> None:
    for number, name in enumerate("abc"):
        write_run(tmp_path / name, [line(n, nfe=4 + number) for n in range(3)])
    out = command("compare", tmp_path, "--against", "b", "-f", "csv").out
    rows = list(csv.DictReader(io.StringIO(out.split("\n\n")[1])))
    assert {(row["run"], row["against"]) for row in rows} == {("a", "b"), ("c", "b")}
    wrong = command("compare", tmp_path, "--against", "d")
    assert wrong.code == 2 and "one of a, b, c" in wrong.err


def test_what_cannot_be_compared_is_said(command: Command, tmp_path: Path) -> None:
    first = write_run(tmp_path / "first", [line(0)])
    second = write_run(tmp_path / "second", [line(0, prompt="something else")])
    third = write_run(tmp_path / "third", [line(1)])
    for words, message in (
        ((first, second), "tiny-gsm/test/0 is not the same question in both runs"),
        ((first, third), "no run has a sample in common with the first, first"),
        ((first, tmp_path / "none"), "is no run"),
        ((first, "--format", "pdf"), "--format is 'pdf'"),
    ):
        result = command("compare", *words)
        assert result.code == 2 and message in result.err
