"""Every way to choose a length in one table: what is run, what the table says of it, in parts."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from rho_eos import Windowed
from rho_eos.base.errors import UserError
from rho_eos.base.outputs import FinishReason, Output
from rho_eos.decoding.registry import policies
from rho_eos.evals.runs.sources import Question
from rho_eos.evals.studies.study import EMBEDDED_TASKS, Plan, Study
from rho_eos.evals.studies.survey import plan_survey, run_survey
from tests.evals.command import Command
from tests.evals.scripted import Script, Watch, rows_of, study_of

LIMIT = 20
ANYWHERE = ("scout", "quantile")  # where they start makes no difference to them
EXACT_09 = {"threshold": ["0.9"], "cache": ["none"]}


def survey(target: str = "lengths", **part: Any) -> Plan:
    """From 4 and 8 tokens, at τ 0.9 without a cache, if nothing else is said."""
    return plan_survey(target, ["tiny-math"], **{"lengths": ["4", "8"], "values": EXACT_09} | part)


class Deceived(Script):
    """Fixed 8 and all that adapt are right, but Sym from 4 answers briefly and fixed 4 is cut."""

    def output(self, job: Question) -> Output:
        output, own = super().output(job), job.ask["params"].model_dump()
        start, cost = own["initial_length"], {"blocks": 50, "fixed": 400}.get(own["policy"], 100)
        usage = dataclasses.replace(
            output.usage, n_token=20, e_token=16, nfe=4, expansions=2,
            positions_evaluated=cost + start,
        )  # fmt: skip
        text, reason = output.text, FinishReason.STOP
        if own["policy"] == "fixed" and start == 4:
            text, reason = text[: len(text) // 2], FinishReason.LENGTH
        if own.get("rho_low") == 0.2 and start == 4:
            text = "#### 0.5"
        return dataclasses.replace(output, text=text, finish_reason=reason, usage=usage)


@pytest.fixture
def no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than all else here."""
    monkeypatch.setattr("rho_eos.evals.studies.survey_figure.write_figure", lambda *_: None)


def run(study: Study, plan: Plan, source: Script | None = None) -> Watch:
    watch = Watch()
    run_survey(study, study.run([plan], (source or Deceived()).open, watch))
    return watch


def table(folder: Path, name: str = "lengths") -> dict[tuple[str, str, str], dict[str, str]]:
    rows = rows_of(folder / f"{name}.csv")
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
    by_section: dict[str, set[tuple[str, int | None]]] = {}
    for row in plan.rows:
        own, policy = row.params.model_dump(), row.params.policy
        assert row.start == (None if policy in ANYWHERE else row.params.first_length)
        said = f"τ {own['threshold']:g}, {'exact' if own['cache'] == 'none' else 'window cache'}"
        assert row.section == said and own["max_new_tokens"] == 2048
        assert own["block_length"] == (None if policy == "blocks" else 32)
        by_section.setdefault(row.section, set()).add((policy, row.start))
    assert len(by_section) == 4
    exact, window = by_section["τ 0.999, exact"], by_section["τ 0.999, window cache"]
    starts = {start for policy, start in exact if policy not in ANYWHERE}
    assert starts == {16, 64, 256, 512}
    never = {name for name, policy in policies().items() if not issubclass(policy, Windowed)}
    assert exact - window == {(name, start) for name, start in exact if name in never}


def test_rows_may_differ_in_any_parameter(byte_checkpoint: Path, tmp_path: Path) -> None:
    """A policy that does not have it takes part in every section, with one run for all."""
    values = {**EXACT_09, "margin": ["8", "16"], "temperature": ["0.5"]}
    plan = survey(policies=["fixed", "asym", "scout"], lengths=["8"], values=values)
    assert [row.section for row in plan.rows] == [
        *3 * ["τ 0.9, exact, margin 8, temperature 0.5"],
        *3 * ["τ 0.9, exact, margin 16, temperature 0.5"],
    ]
    assert all(row.params.temperature == 0.5 for row in plan.rows)
    scouts = [row.params.model_dump()["margin"] for row in plan.rows if row.series == "Scout"]
    assert scouts == [8, 16]
    assert len(study_of(byte_checkpoint, tmp_path).cells([plan])) == 4  # fixed and Asym run once


def test_the_table_says_who_is_right_what_it_costs_and_who_is_deceived(
    byte_checkpoint: Path, tmp_path: Path
) -> None:
    run(study_of(byte_checkpoint, tmp_path, limit=LIMIT), survey())
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


def test_in_parts_it_is_the_same_table_and_nothing_is_asked_twice(
    byte_checkpoint: Path, tmp_path: Path, no_picture: None
) -> None:
    names, lengths = ["fixed", "blocks"], ["16", "64"]

    def part(names: list[str], *thresholds: str) -> Plan:
        values = {"threshold": list(thresholds), "cache": ["none"]}
        return survey(policies=names, lengths=lengths, values=values)

    whole = study_of(byte_checkpoint, tmp_path / "whole", limit=3)
    assert len(run(whole, part(names, "0.999", "0.9")).ran) == 2 * 2 * 2
    parted, first = study_of(byte_checkpoint, tmp_path / "parted", limit=3), Deceived()
    run(parted, part(["blocks"], "0.9"), first)
    assert len(first.asked) == 2 * 3
    assert {policy for _, policy, _ in table(tmp_path / "parted")} == {"Blocks until EOS"}
    assert len(run(parted, part(names, "0.999")).ran) == 4
    assert len(run(parted, part(names, "0.9")).ran) == 2
    assert table(tmp_path / "parted") == table(tmp_path / "whole")
    assert run(parted, part(names, "0.999", "0.9")).ran == []


def test_a_part_is_judged_by_the_starts_that_were_run(
    byte_checkpoint: Path, tmp_path: Path, no_picture: None
) -> None:
    """Scout's one run stands for all starts; that does not put others out of the race."""
    plan = survey(policies=["fixed", "asym", "scout"], lengths=["64"])
    run(study_of(byte_checkpoint, tmp_path, limit=3), plan)
    assert {"ρ-EOS Asym", "Scout"} == set(verdicts(tmp_path)["τ 0.9, exact"]["cost"])
    assert {start for _, policy, start in table(tmp_path) if policy == "Scout"} == {"any"}


@pytest.mark.parametrize(
    ("parts", "choice", "says"),
    [
        ([(["fixed", "sym"], ["4", "8"])], "fixed 8", "fixed 8"),  # every policy is deceived
        ([(["scout"], ["8"])], None, "that takes fixed lengths"),
        ([(["fixed"], ["8"])], None, "that takes fixed lengths"),
        # None was run from every start.
        ([(["fixed", "asym"], ["16"]), (["sym"], ["64"])], None, "that takes fixed lengths"),
    ],
)
def test_where_no_policy_can_be_recommended_it_is_said(
    parts: list[tuple[list[str], list[str]]],
    choice: str | None,
    says: str,
    byte_checkpoint: Path,
    tmp_path: Path,
    no_picture: None,
) -> None:
    for names, lengths in parts:
        plan = survey(policies=names, lengths=lengths)
        run(study_of(byte_checkpoint, tmp_path, limit=LIMIT if choice else 2), plan)
    found = verdicts(tmp_path)["τ 0.9, exact"]
    assert (found["choice"], found["cost"]) == (choice, {}) and says in found["says"]


def test_choices_are_made_on_other_samples_than_are_reported(
    byte_checkpoint: Path, tmp_path: Path, no_picture: None
) -> None:
    plan = survey(policies=["blocks"], lengths=["8"])

    def asked(skip: int) -> set[str]:
        source = Deceived()
        run(study_of(byte_checkpoint, tmp_path / "out", limit=6, skip=skip), plan, source)
        return set(source.asked)

    reported, chosen_on = asked(skip=0), asked(skip=6)
    assert len(reported) == len(chosen_on) == 6 and not reported & chosen_on
    assert "the 6 samples of a task behind the first 6" in (tmp_path / "out/lengths.md").read_text()
    assert asked(skip=0) == set()  # the first ones are there still
    with pytest.raises(UserError, match="skip is 500, but tiny-math has 500 samples"):
        study_of(byte_checkpoint, tmp_path, limit=None, skip=500).cells([plan])


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
