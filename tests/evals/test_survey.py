"""Every way to choose a length in one table: what is run, what the table says of it, in parts."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rho_eos import Windowed
from rho_eos.base.errors import UserError
from rho_eos.base.outputs import FinishReason, Output, Usage
from rho_eos.config import EngineConfig
from rho_eos.decoding.registry import policies
from rho_eos.evals.runs.sources import Outputs, Question
from rho_eos.evals.studies.findings import ended_early, findings
from rho_eos.evals.studies.study import EMBEDDED_TASKS, Study
from rho_eos.evals.studies.survey import Survey, plan_survey, run_survey
from rho_eos.evals.studies.survey_figure import draw
from tests.evals.command import Command
from tests.evals.scripted import Script, Watch

LIMIT = 20
EXACT_09 = {"threshold": ["0.9"], "cache": ["none"]}


def survey(target: str = "lengths", **part: Any) -> Survey:
    """From 4 and 8 tokens, at τ 0.9 without a cache, if nothing else is said."""
    return plan_survey(target, ["tiny-math"], **{"lengths": ["4", "8"], "values": EXACT_09} | part)


class Deceived(Script):
    """Fixed 8 and all that adapt are right, but Sym from 4 answers briefly and fixed 4 is cut."""

    def answers(self, jobs: Sequence[Question]) -> Outputs:
        for job in jobs:
            self.asked.append(job.id)
            own = job.ask["params"].model_dump()
            start, gold = own["initial_length"], job.task.gold(job.sample)
            text, reason = gold, FinishReason.STOP
            if own["policy"] == "fixed" and start == 4:
                text, reason = gold[: len(gold) // 2], FinishReason.LENGTH
            if own.get("rho_low") == 0.2 and start == 4:
                text = "#### 0.5"
            cost = {"blocks": 50, "fixed": 400}.get(own["policy"], 100)
            usage = Usage(
                prompt_tokens=10, n_token=20, e_token=16, nfe=4, committed=16, expansions=2,
                positions_evaluated=cost + start,
            )  # fmt: skip
            yield Output(job.id, text, reason, usage=usage)


@pytest.fixture
def no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than all else here."""
    monkeypatch.setattr("rho_eos.evals.studies.survey_figure.write_figure", lambda *_: None)


def study_of(checkpoint: Path, out: Path, **more: Any) -> Study:
    config = EngineConfig(model=str(checkpoint), device="cpu")
    return Study(config=config, folder=out, **{"limit": LIMIT} | more)


def run(study: Study, plan: Survey, source: Script) -> Watch:
    watch = Watch()
    run_survey(study, plan, source.open, watch)
    return watch


def table(folder: Path, name: str = "lengths") -> dict[tuple[str, str, str], dict[str, str]]:
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found = {(row["section"], row["policy"], row["L_init"]): row for row in rows}
    assert len(found) == len(rows)
    return found


def verdicts(folder: Path) -> dict[str, Any]:
    content = json.loads((folder / "lengths.json").read_text(encoding="utf-8"))
    page = (folder / "lengths.md").read_text(encoding="utf-8")
    for section, found in content["verdicts"].items():
        assert f"**{section}.** {found['says']}" in page
    return content["verdicts"]


def test_every_policy_is_asked_the_same_from_every_length() -> None:
    plan = plan_survey("lengths", EMBEDDED_TASKS)
    assert set(plan.rows) == set(plan.every) and len(plan.tasks) == 4
    by_section: dict[str, set[tuple[str, int | None]]] = {}
    for row in plan.every:
        own = row.params.model_dump()
        policy = row.params.policy
        assert row.start == (None if policy == "scout" else row.params.first_length)
        said = f"τ {own['threshold']:g}, {'exact' if own['cache'] == 'none' else 'window cache'}"
        assert row.section == said and own["max_new_tokens"] == 2048
        assert own["block_length"] == (None if policy == "blocks" else 32)
        by_section.setdefault(row.section, set()).add((policy, row.start))
    exact, window = by_section["τ 0.999, exact"], by_section["τ 0.999, window cache"]
    assert set(by_section) == {
        *("τ 0.999, exact", "τ 0.999, window cache", "τ 0.9, exact", "τ 0.9, window cache"),
    }
    assert {start for policy, start in exact if policy != "scout"} == {16, 64, 256, 512}
    never = {name for name, policy in policies().items() if not issubclass(policy, Windowed)}
    assert exact - window == {(name, start) for name, start in exact if name in never}


def test_stress_asks_all_that_lengths_does_and_more(byte_checkpoint: Path, tmp_path: Path) -> None:
    lengths, stress = (plan_survey(name, ["tiny-math"]) for name in ("lengths", "stress"))
    assert {row.label for row in lengths.rows} < {row.label for row in stress.rows}
    more = {(row.policy, row.start) for row in stress.every if row not in lengths.every}
    assert {start for policy, start in more if policy == "fixed"} == {32, 128}
    assert {policy for policy, _ in more} == {
        *("fixed", "ρ-EOS [0.4, 0.6]", "Asym by EOS confidence"),
    }
    study = study_of(byte_checkpoint, tmp_path)
    shared = {cell.folder for cell in study.cells([lengths])}
    assert shared < {cell.folder for cell in study.cells([stress])}


def test_rows_may_differ_in_any_parameter(byte_checkpoint: Path, tmp_path: Path) -> None:
    """A policy that does not have it takes part in every section, with one run for all."""
    values = {**EXACT_09, "margin": ["8", "16"], "temperature": ["0.5"]}
    plan = survey(policies=["fixed", "asym", "scout"], lengths=["8"], values=values)
    assert [row.section for row in plan.rows] == [
        *3 * ["τ 0.9, exact, margin 8, temperature 0.5"],
        *3 * ["τ 0.9, exact, margin 16, temperature 0.5"],
    ]
    assert all(row.params.temperature == 0.5 for row in plan.rows)
    scouts = [row.params.model_dump()["margin"] for row in plan.rows if row.policy == "Scout"]
    assert scouts == [8, 16]
    assert len(study_of(byte_checkpoint, tmp_path).cells([plan])) == 4  # fixed and Asym run once


def test_the_table_says_who_is_right_what_it_costs_and_who_is_deceived(
    byte_checkpoint: Path, tmp_path: Path
) -> None:
    run(study_of(byte_checkpoint, tmp_path), survey(), Deceived())
    found = table(tmp_path)
    assert {section for section, *_ in found} == {"τ 0.9, exact"}

    def row(policy: str, start: int) -> dict[str, str]:
        return found["τ 0.9, exact", policy, str(start)]

    assert row("fixed", 8)["Acc %"].startswith("100.0") and row("fixed", 8)["Δ fixed"] == "+0.0"
    assert row("fixed", 4)["Δ fixed"] == "-100.0" and row("fixed", 4)["ended early %"] == "100.0"
    assert row("ρ-EOS Sym", 4)["Δ fixed"] == "-100.0"
    assert row("ρ-EOS Sym", 4)["ended early %"] == "100.0"  # far shorter than the reference
    assert row("ρ-EOS Sym", 8)["ended early %"] == "0.0"
    cheap = "Blocks until EOS"
    assert row(cheap, 4)["of Asym %"] == f"{100 * 54 / 104:.0f}"
    assert row(cheap, 8)["positions"].startswith("58")
    assert row(cheap, 8)["E_ratio %"].startswith("80.0")
    assert (row(cheap, 8)["edits"], row(cheap, 8)["NFE"]) == ("2.0", "4.0")
    said = verdicts(tmp_path)["τ 0.9, exact"]
    assert (said["best_fixed"], said["choice"], said["samples"]) == (8, cheap, LIMIT)
    assert said["deceived"] == {"ρ-EOS Sym": [4]}
    assert next(iter(said["cost"].items())) == (cheap, 56) and "ρ-EOS Sym" not in said["cost"]
    assert cheap in said["says"] and f"{100 / LIMIT:.1f} points" in said["says"]
    for suffix in (".png", ".svg", ".tex"):
        assert (tmp_path / f"lengths{suffix}").stat().st_size > 1000


def test_where_every_policy_is_deceived_a_fixed_length_is_recommended(
    byte_checkpoint: Path, tmp_path: Path, no_picture: None
) -> None:
    run(study_of(byte_checkpoint, tmp_path), survey(policies=["fixed", "sym"]), Deceived())
    said = verdicts(tmp_path)["τ 0.9, exact"]
    assert said["choice"] == "fixed 8" and said["cost"] == {} and "fixed 8" in said["says"]


def test_in_parts_it_is_the_same_table_and_nothing_is_asked_twice(
    byte_checkpoint: Path, tmp_path: Path, no_picture: None
) -> None:
    names, lengths = ["fixed", "blocks"], ["16", "64"]

    def part(names: list[str], *thresholds: str) -> Survey:
        values = {"threshold": list(thresholds), "cache": ["none"]}
        return survey(policies=names, lengths=lengths, values=values)

    whole = study_of(byte_checkpoint, tmp_path / "whole", limit=3)
    assert len(run(whole, part(names, "0.999", "0.9"), Deceived()).ran) == 2 * 2 * 2
    parted = study_of(byte_checkpoint, tmp_path / "parted", limit=3)
    first = Deceived()
    run(parted, part(["blocks"], "0.9"), first)
    assert len(first.asked) == 2 * 3
    assert {policy for _, policy, _ in table(tmp_path / "parted")} == {"Blocks until EOS"}
    assert len(run(parted, part(names, "0.999"), Deceived()).ran) == 4
    assert len(run(parted, part(names, "0.9"), Deceived()).ran) == 2
    assert table(tmp_path / "parted") == table(tmp_path / "whole")
    assert run(parted, part(names, "0.999", "0.9"), Deceived()).ran == []


def test_a_part_is_judged_by_the_starts_that_were_run(
    byte_checkpoint: Path, tmp_path: Path, no_picture: None
) -> None:
    """Scout's one run stands for all starts; that does not put others out of the race."""
    plan = survey(policies=["fixed", "asym", "scout"], lengths=["64"])
    run(study_of(byte_checkpoint, tmp_path, limit=3), plan, Deceived())
    assert {"ρ-EOS Asym", "Scout"} == set(verdicts(tmp_path)["τ 0.9, exact"]["cost"])
    assert {start for _, policy, start in table(tmp_path) if policy == "Scout"} == {"any"}


@pytest.mark.parametrize(
    "names",
    [
        ["scout"],
        ["fixed"],
        ["asym", "scout"],
    ],
)
def test_what_cannot_be_judged_is_said(
    names: list[str], byte_checkpoint: Path, tmp_path: Path, no_picture: None
) -> None:
    run(study_of(byte_checkpoint, tmp_path, limit=2), survey(policies=names), Deceived())
    found = verdicts(tmp_path)["τ 0.9, exact"]
    assert found["choice"] is None and "that takes fixed lengths" in found["says"]


def test_without_a_policy_from_every_start_there_is_no_verdict(
    byte_checkpoint: Path, tmp_path: Path, no_picture: None
) -> None:
    study = study_of(byte_checkpoint, tmp_path, limit=2)
    for names, length in ((["fixed", "asym"], "16"), (["sym"], "64")):
        run(study, survey(policies=names, lengths=[length]), Deceived())
    assert {(policy, start) for _, policy, start in table(tmp_path)} == {
        *(("fixed", "16"), ("ρ-EOS Asym", "16"), ("ρ-EOS Sym", "64")),
    }
    said = verdicts(tmp_path)["τ 0.9, exact"]
    assert said["choice"] is None and "None" not in said["says"]


def test_choices_are_made_on_other_samples_than_are_reported(
    byte_checkpoint: Path, tmp_path: Path, no_picture: None
) -> None:
    plan = survey(policies=["blocks"], lengths=["8"])

    def asked(**more: Any) -> set[str]:
        source = Deceived()
        run(study_of(byte_checkpoint, tmp_path / "out", **more), plan, source)
        return set(source.asked)

    reported, chosen_on = asked(limit=6), asked(limit=6, skip=6)
    assert len(reported) == len(chosen_on) == 6 and not reported & chosen_on
    assert "the 6 samples of a task behind the first 6" in (tmp_path / "out/lengths.md").read_text()
    assert asked(limit=6) == set()  # the first ones are there still
    with pytest.raises(UserError, match="skip is 500, but tiny-math has 500 samples"):
        study_of(byte_checkpoint, tmp_path, limit=None, skip=500).cells([plan])


@pytest.mark.parametrize(
    ("text", "reason", "correct", "early"),
    [
        ("#### 7", "stop", True, False),  # brief and right
        ("#### 8", "stop", False, True),
        ("3 + 4 = 8\n#### 8", "stop", False, False),  # complete and wrong
        ("3 + 4 = 8\n#### 8", "length", False, True),
    ],
)
def test_ended_early(text: str, reason: str, correct: bool, early: bool) -> None:
    line = {"text": text, "finish_reason": reason, "correct": correct}
    assert ended_early(line | {"reference": "3 + 4 = 7\n#### 7"}) is early


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["length"], "survey got 'length', but takes one of lengths, stress"),
        (["lengths", "--policies", "scot"], "policies is 'scot', but takes some of fixed,"),
        (["lengths", "--lengths", "many"], "initial_length is 'many', but takes an integer"),
        (["lengths", "--lengths", "0"], "initial_length is 0, but takes an integer"),
        (["lengths", "--with", "threshold=2"], "threshold is 2.0, but takes"),
        (["stress", "--with", "cache=all"], "cache is 'all', but takes one of none, window"),
        (["lengths", "--with", "treshold=0.9"], "'treshold' is no decoding parameter"),
        (["lengths", "--with", "threshold"], "--with is 'threshold', but takes NAME=VALUE"),
        (["lengths", "--with", "policy=fixed"], "but with --policies"),
        (["lengths", "--policies", "fixed", "--with", "margin=8"], "none of these policies has"),
        (["lengths", "--skip", "-1"], "skip is -1, but takes an integer of at least 0"),
    ],
)
def test_a_part_that_there_is_not_is_refused(
    words: list[str], message: str, command: Command, tmp_path: Path
) -> None:
    result = command("survey", *words, "--out", tmp_path / "out")
    assert result.code == 2 and message in result.err and result.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_command_runs_a_part_with_a_model(
    command: Command, byte_checkpoint: Path, tmp_path: Path
) -> None:
    words = ["survey", "stress", "-m", byte_checkpoint, "--tasks", "tiny-math", "--limit", "1"]
    words += ["--policies", "fixed,asym", "--lengths", "4,8", "--with", "threshold=.999"]
    words += ["--with", "cache=none", "--with", "max-new-tokens=16", "--out", tmp_path / "out"]
    dry = command(*words, "--dry-run")
    assert dry.code == 0 and "0 of 4 cells are finished" in dry.out
    result = command(*words)
    assert result.code == 0, result.err
    assert "[4/4] ρ-EOS Asym from 8, τ 0.999, exact" in result.err
    assert len(table(tmp_path / "out", "stress")) == 4
    assert result.out.rstrip().endswith("stress.md")


def test_the_picture_names_every_start_and_leaves_out_a_section_of_one_policy(
    byte_checkpoint: Path, tmp_path: Path, no_picture: None
) -> None:
    study = study_of(byte_checkpoint, tmp_path, limit=2)
    for threshold, names, lengths in (
        ("0.999", ["fixed"], ["16"]),
        ("0.9", ["fixed", "asym"], ["16", "64"]),
    ):
        values = {"threshold": [threshold], "cache": ["none"]}
        plan = survey(policies=names, lengths=lengths, values=values)
        run(study, plan, Deceived())
    figure = draw(findings(study, plan.every, plan.tasks))
    titles = [axes.get_title() or axes.get_title("left") for axes in figure.axes]
    assert [title for title in titles if title] == ["τ 0.9, exact"]
    [legend] = [axes.get_legend() for axes in figure.axes if axes.get_legend() is not None]
    assert [text.get_text() for text in legend.get_texts()] == ["16", "64"]
