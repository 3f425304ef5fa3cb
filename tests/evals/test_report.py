"""Summaries and tables: numbers worked out by hand or by the standard library."""

import csv
import io
import itertools
import statistics

import pytest

from rho_eos.evals.runs.report import summarise, summary_table
from rho_eos.evals.runs.stats import pass_at
from rho_eos.evals.runs.table import Table
from tests.evals.runs import line


def test_means_come_with_their_standard_errors_and_e_ratio_is_that_of_the_averages() -> None:
    costs, canvas = [3, 5, 10, 2], [10, 40, 10, 40]
    lines = [
        line(n, correct=n > 0, nfe=cost, e_token=10, n_token=length)
        for n, (cost, length) in enumerate(zip(costs, canvas, strict=True))
    ]
    [summary] = summarise(lines)
    assert summary.samples == 4 and summary.accuracy.mean == 0.75
    assert summary.accuracy.error == pytest.approx(statistics.stdev([0, 1, 1, 1]) / 2)
    assert summary.costs["nfe"].mean == 5
    assert summary.costs["nfe"].error == pytest.approx(statistics.stdev(costs) / 2)
    assert summary.e_ratio is not None and summary.e_ratio.mean == 40 / 100


def test_repeats_do_not_count_as_further_samples_and_sessions_take_their_time() -> None:
    once = [line(n, correct=n < 2, elapsed=10.0 + n) for n in range(4)]
    once[3] |= {"session": 2, "elapsed": 5.0}
    thrice = [each | {"id": f"{each['id']}#{k}", "repeat": k} for each in once for k in range(3)]
    [single], [triple] = summarise(once), summarise(thrice)
    assert (triple.samples, triple.repeats) == (4, 3)
    assert triple.accuracy == single.accuracy
    assert single.seconds == 12 + 5 and triple.seconds == pytest.approx(single.seconds / 3)
    assert "4×3" in summary_table([("run", [triple])]).markdown()


def test_pass_at_k_is_the_share_of_choices_of_k_answers_that_hold_a_right_one() -> None:
    for asked in range(1, 7):
        for right in range(asked + 1):
            answers = [True] * right + [False] * (asked - right)
            for k in range(1, asked + 1):
                chosen = [any(each) for each in itertools.combinations(answers, k)]
                assert pass_at(right, asked, k) == pytest.approx(statistics.mean(chosen))


def test_repeats_give_pass_at_k_and_a_task_may_give_scores() -> None:
    right = {0: [True, False, False, False, False], 1: [False] * 5}
    lines = [
        line(n, correct=each, id=f"{n}#{k}", repeat=k, score=0.5 * each)
        for n, answers in right.items()
        for k, each in enumerate(answers)
    ]
    [summary] = summarise(lines)
    assert {k: each.mean for k, each in summary.pass_at.items()} == pytest.approx(
        {2: 0.2, 4: 0.4, 5: 0.5}
    )
    assert summary.score is not None and summary.score.mean == pytest.approx(0.05)
    table = summary_table([("run", [summary])])
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert cells["pass@4 %"].startswith("40.0 [") and cells["score %"].startswith("5.0 [")
    [once] = summarise([line(0), line(1)])
    assert not once.pass_at and once.score is None


def test_tasks_are_summed_up_apart_and_runs_stand_together() -> None:
    lines = [line(0), line(0, correct=False, task="tiny-math")]
    table = summary_table([("a", summarise(lines)), ("b", summarise(lines))])
    places = [(run, task) for task in ("tiny-gsm", "tiny-math") for run in "ab"]
    assert [(row[0], row[1]) for row in table.rows] == places
    assert summarise([]) == [] and summary_table([("run", [])]).rows == []


def test_without_a_model_there_are_no_costs_to_show() -> None:
    gold = {key: value for key, value in line(0).items() if key != "nfe"}
    [row] = summary_table([("gold", summarise([gold]))]).rows
    assert row[3].startswith("100.0 [20.7") and set(row[4:]) == {"–"}


def test_a_run_with_the_cache_shows_both_costs_and_its_refreshes() -> None:
    exact = [line(n, positions_exact=100, refreshes=4) for n in range(2)]
    saving = [each | {"positions_evaluated": 40, "refreshes": 1} for each in exact]
    assert not {"exact", "refreshes"} & set(summary_table([("", summarise(exact))]).columns)
    table = summary_table([("exact", summarise(exact)), ("saving", summarise(saving))])
    shown = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    columns = ("run", "positions", "exact", "refreshes")
    assert [[row[name].split(" ±")[0] for name in columns] for row in shown] == [
        ["exact", "100", "100", "4.0"],
        ["saving", "40", "100", "1.0"],
    ]


def test_what_was_kept_from_other_requests_is_shown_where_there_is_any() -> None:
    old = {key: value for key, value in line(0).items() if key != "positions_reused"}
    none, some = line(0, positions_reused=0), line(0, positions_reused=48)
    assert "reused" not in summary_table([("", summarise([none])), ("", summarise([old]))]).columns
    runs = [("some", summarise([some])), ("none", summarise([none])), ("old", summarise([old]))]
    table = summary_table(runs)
    at = list(table.columns).index("reused")
    assert [row[at] for row in table.rows] == ["48", "0", "–"]


def test_every_form_holds_every_cell() -> None:
    table = Table(("run", "Acc %"), [["a_b|c", "50.0 ± 1.0"], ['say "x", y', "–"]])
    assert list(csv.reader(io.StringIO(table.csv()))) == [list(table.columns), *table.rows]
    head, rule, first, second = table.markdown().splitlines()
    assert (head, rule) == ("| run | Acc % |", "| --- | ---: |")
    assert first == r"| a_b\|c | 50.0 ± 1.0 |" and second == '| say "x", y | – |'
    latex = table.latex()
    assert r"a\_b|c & 50.0 $\pm$ 1.0 \\" in latex and r"run & Acc \% \\" in latex
    assert latex.startswith(r"\begin{tabular}{lr}") and latex.rstrip().endswith(r"\end{tabular}")


def test_a_terminal_that_is_too_narrow_gets_a_row_under_the_other() -> None:
    table = Table(
        ("run", "NFE", "positions"), [["short", "1.0", "20"], ["a long name", "12.0", "3"]]
    )
    head, _, first, second = table.terminal(narrower_than=80).splitlines()
    assert {len(line) for line in (head, first, second)} == {len("a long name  12.0  positions")}
    records = table.terminal(narrower_than=20)
    assert max(map(len, records.splitlines())) < 20
    assert all(cell in records for cell in (*table.rows[0], *table.rows[1], *table.columns[1:]))
