"""Every way to choose a length in one table: what is run, what the table says of it, in parts."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rho_eos.base.errors import UserError
from rho_eos.base.outputs import FinishReason, Output, Usage
from rho_eos.config import EngineConfig
from rho_eos.decoding.registry import policies
from rho_eos.evals.runs.sources import Outputs, Question
from rho_eos.reproduce.cells import Study
from rho_eos.reproduce.profiles import TINY
from rho_eos.reproduce.run import reproduce
from rho_eos.reproduce.survey import Part, Survey, SurveyRow, plan_survey
from rho_eos.reproduce.survey_figure import draw
from rho_eos.reproduce.survey_table import ended_early, findings
from tests.evals.command import Command
from tests.reproduce.conftest import SMALL
from tests.reproduce.scripted import Script, Watch

STARTS = (4, 8)
LIMIT = 20


def survey(target: str = "lengths", **part: Any) -> Survey:
    [plan] = plan_survey(target, SMALL, [], Part(**part))
    assert isinstance(plan, Survey)
    return plan


class Deceived(Script):
    """Fixed 8 and all that adapt are right, but Sym from 4 answers briefly and fixed 4 is cut."""

    def answers(self, jobs: Sequence[Question]) -> Outputs:
        for job in jobs:
            self.asked.append(job.id)
            assert job.params is not None
            own = job.params.model_dump()
            start, gold = own["initial_length"], job.task.gold(job.sample)
            text, reason = gold, FinishReason.STOP
            if own["policy"] == "fixed" and start == 4:
                text, reason = gold[: len(gold) // 2], FinishReason.LENGTH
            if own.get("rho_low") == 0.2 and start == 4:
                text = "#### 0.5"
            cost = {"frontier": 50, "fixed": 400}.get(own["policy"], 100)
            usage = Usage(
                prompt_tokens=10, n_token=20, e_token=16, nfe=4, committed=16, expansions=2,
                positions_evaluated=cost + start,
            )  # fmt: skip
            yield Output(job.id, text, reason, usage=usage)


@pytest.fixture
def no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than all else here."""
    figure = "rho_eos.reproduce.survey_figure.write_survey_figure"
    monkeypatch.setattr(figure, lambda *_: None)


def study_of(checkpoint: Path, out: Path, **more: Any) -> Study:
    config = EngineConfig(model=str(checkpoint), device="cpu")
    return Study(config=config, profile=SMALL, folder=out, **{"limit": LIMIT} | more)


def run(study: Study, plan: Survey, source: Script) -> Watch:
    watch = Watch()
    reproduce(study, [plan], [], source.open, watch)
    return watch


def table(folder: Path, name: str = "lengths") -> dict[tuple[str, str, str], dict[str, str]]:
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found = {(row["section"], row["policy"], row["L_init"]): row for row in rows}
    assert len(found) == len(rows)
    return found


def test_every_policy_is_asked_the_same_from_every_length() -> None:
    [plan] = plan_survey("lengths", TINY, [], Part())
    assert isinstance(plan, Survey) and plan.rows == plan.every and len(plan.tasks) == 4
    by_section: dict[str, set[tuple[str, int]]] = {}
    first_of_scout = 32  # wherever it is told to start
    for row in plan.every:
        own = row.params.model_dump()
        assert row.params.first_length == (
            first_of_scout if row.params.policy == "scout" else row.start
        )
        assert own["threshold"] == row.threshold
        assert own["cache"] == row.cache and own["max_new_tokens"] == 2048
        assert own["block_length"] == (None if row.params.policy == "blocks" else 32)
        by_section.setdefault(row.section, set()).add((row.contender.name, row.start))
    exact, window = by_section["τ 0.999, exact"], by_section["τ 0.999, window cache"]
    assert set(by_section) == {
        *("τ 0.999, exact", "τ 0.999, window cache", "τ 0.9, exact", "τ 0.9, window cache"),
    }
    names = {"fixed", "daedal", "sym", "asym", "released", "blocks", "landing", "frontier", "scout"}
    assert {name for name, _ in exact} == names
    assert {start for _, start in exact} == {16, 64, 256, 512}
    never = {name for name, policy in policies().items() if policy.windows is False}
    assert exact - window == {(name, start) for name, start in exact if name in never}


def test_stress_asks_all_that_lengths_does_and_more() -> None:
    stress, lengths = (
        [row for plan in plan_survey(name, TINY, [], Part()) for row in plan.rows]
        for name in ("stress", "lengths")
    )
    assert {row.label for row in lengths} < {row.label for row in stress}
    more = [row for row in stress if row not in lengths and isinstance(row, SurveyRow)]
    assert {row.contender.name for row in more} == {"fixed", "narrow", "confidence"}
    assert {row.start for row in more if row.contender.name == "fixed"} == {32, 128}


def test_the_two_surveys_share_cells(byte_checkpoint: Path, tmp_path: Path) -> None:
    study = study_of(byte_checkpoint, tmp_path)
    lengths = {cell.folder for cell in study.cells([survey("lengths")])}
    stress = {cell.folder for cell in study.cells([survey("stress")])}
    # At both τ, with and without the cache: fixed 6, which is no initial length, and two other
    # settings of ρ-EOS from 4 and 8.
    assert len(stress - lengths) == 2 * 2 * (1 + 2 * 2)


def test_the_table_says_who_is_right_what_it_costs_and_who_is_deceived(
    byte_checkpoint: Path, tmp_path: Path
) -> None:
    plan = survey(thresholds=["0.9"], caches=["none"])
    run(study_of(byte_checkpoint, tmp_path), plan, Deceived())
    found = table(tmp_path)
    assert {section for section, *_ in found} == {"τ 0.9, exact"}

    def row(policy: str, start: int) -> dict[str, str]:
        return found["τ 0.9, exact", policy, str(start)]

    assert row("fixed", 8)["Acc %"].startswith("100.0") and row("fixed", 8)["Δ fixed"] == "+0.0"
    assert row("fixed", 4)["Δ fixed"] == "-100.0" and row("fixed", 4)["ended early %"] == "100.0"
    assert row("ρ-EOS Sym", 4)["Δ fixed"] == "-100.0"
    assert row("ρ-EOS Sym", 4)["ended early %"] == "100.0"  # far shorter than the reference
    assert row("ρ-EOS Sym", 8)["ended early %"] == "0.0"
    assert row("Frontier", 4)["of Asym %"] == f"{100 * 54 / 104:.0f}"
    assert row("Frontier", 8)["positions"].startswith("58")
    assert row("Frontier", 8)["E_ratio %"].startswith("80.0")
    assert (row("Frontier", 8)["edits"], row("Frontier", 8)["NFE"]) == ("2.0", "4.0")
    text = (tmp_path / "lengths.md").read_text()
    assert "The best fixed length is 8." in text
    assert "p < 0.05): ρ-EOS Sym from 4." in text
    cheapest = text.partition("the cheapest first (positions, averaged over L_init): ")[2]
    assert cheapest.startswith("Frontier (56), ") and "Sym" not in cheapest.partition(".")[0]
    assert text.endswith(
        f"of {LIMIT} samples one is {100 / LIMIT:.1f} points. It speaks for Frontier.\n"
    )
    for suffix in (".png", ".svg", ".tex"):
        assert (tmp_path / f"lengths{suffix}").stat().st_size > 1000
    index = (tmp_path / "index.md").read_text()
    assert "lengths.md" in index and "It speaks for Frontier." in index


def test_where_every_policy_is_deceived_a_fixed_length_is_recommended(
    byte_checkpoint: Path, tmp_path: Path, no_picture: None
) -> None:
    plan = survey(policies=["fixed", "sym"], thresholds=["0.9"], caches=["none"])
    run(study_of(byte_checkpoint, tmp_path), plan, Deceived())
    text = (tmp_path / "lengths.md").read_text()
    assert "No policy is within 0.5 points of it from every L_init" in text
    assert text.endswith("It speaks for fixed 8.\n")


def test_in_parts_it_is_the_same_table_and_nothing_is_asked_twice(
    byte_checkpoint: Path, tmp_path: Path, no_picture: None
) -> None:
    some: dict[str, Any] = {"policies": ["fixed", "frontier"], "caches": ["none"]}
    whole = study_of(byte_checkpoint, tmp_path / "whole")
    assert len(run(whole, survey(**some), Deceived()).ran) == 2 * 2 * 2
    parted = study_of(byte_checkpoint, tmp_path / "parted")
    first = Deceived()
    run(parted, survey(**some | {"policies": ["frontier"], "thresholds": ["0.9"]}), first)
    assert len(first.asked) == 2 * LIMIT
    assert {policy for _, policy, _ in table(tmp_path / "parted")} == {"Frontier"}
    assert len(run(parted, survey(**some | {"thresholds": ["0.999"]}), Deceived()).ran) == 4
    assert len(run(parted, survey(**some), Deceived()).ran) == 2
    assert table(tmp_path / "parted") == table(tmp_path / "whole")
    assert run(parted, survey(**some), Deceived()).ran == []


def test_a_part_is_judged_by_the_starts_that_were_run(
    byte_checkpoint: Path, tmp_path: Path
) -> None:
    """Scout's one run stands for all starts; that does not put others out of the race."""
    plan = survey(policies=["fixed", "asym", "scout"], lengths=["8"], thresholds=[".9"])
    run(study_of(byte_checkpoint, tmp_path), plan, Deceived())
    text = (tmp_path / "lengths.md").read_text()
    cheapest = text.partition("the cheapest first (positions, averaged over L_init): ")[2]
    assert "ρ-EOS Asym (" in cheapest.partition(".")[0]
    assert {start for _, policy, start in table(tmp_path) if policy == "Scout"} == {"8"}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["scout"], "Only Scout was run, so there is nothing to compare it with."),
        (["fixed"], "Only fixed was run, so there is nothing to compare it with."),
        (["asym", "scout"], "No fixed length was run, so nothing says how often"),
    ],
)
def test_what_cannot_be_judged_is_said(
    names: list[str], said: str, byte_checkpoint: Path, tmp_path: Path, no_picture: None
) -> None:
    plan = survey(policies=names, thresholds=["0.9"], caches=["none"])
    run(study_of(byte_checkpoint, tmp_path), plan, Deceived())
    for page in ("lengths.md", "index.md"):
        assert f"**τ 0.9, exact.** {said}" in (tmp_path / page).read_text()


def test_without_a_policy_from_every_start_there_is_no_verdict(
    byte_checkpoint: Path, tmp_path: Path, no_picture: None
) -> None:
    study = study_of(byte_checkpoint, tmp_path)
    for names, length in ((["fixed", "asym"], "4"), (["sym"], "8")):
        part = {"policies": names, "lengths": [length], "thresholds": ["0.9"]}
        run(study, survey(**part, caches=["none"]), Deceived())
    text = (tmp_path / "lengths.md").read_text()
    assert "Asym | 4" in text and "Sym | 8" in text and "None" not in text
    assert "The best fixed length" not in text
    assert "No policy was run from all the initial lengths of the others" in text


def test_choices_are_made_on_other_samples_than_are_reported(
    byte_checkpoint: Path, tmp_path: Path, no_picture: None
) -> None:
    plan = survey(policies=["frontier"], lengths=["8"], thresholds=["0.9"], caches=["none"])

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
        (["lengths", "--policies", "fronteer"], "policies is 'fronteer', but takes some of fixed,"),
        (["lengths", "--lengths", "17"], "lengths is '17', but takes some of 4, 8"),
        (["lengths", "--thresholds", "0.5"], "thresholds is '0.5', but takes some of 0.999, 0.9"),
        (["stress", "--caches", "all"], "caches is 'all', but takes some of none, window"),
        (["main", "--policies", "fixed"], "--caches go with lengths and stress, not with main"),
        (["lengths", "--skip", "-1"], "skip is -1, but takes an integer of at least 0"),
    ],
)
def test_a_part_that_there_is_not_is_refused(
    words: list[str], message: str, command: Command, tmp_path: Path
) -> None:
    result = command("reproduce", *words, "--profile", "small", "--out", tmp_path / "out")
    assert result.code == 2 and message in result.err and result.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_command_runs_a_part_with_a_model(
    command: Command, ending_checkpoint: Path, tmp_path: Path
) -> None:
    words = ("reproduce", "stress", "-m", ending_checkpoint, "--profile", "small", "--limit", "1")
    words = (
        *words,
        "--policies",
        "fixed,frontier",
        "--thresholds",
        "0.999",
        "--caches",
        "none",
        "--out",
        tmp_path / "out",
    )
    dry = command(*words, "--dry-run")
    assert dry.code == 0 and "0 of 5 cells are finished" in dry.out
    result = command(*words)
    assert result.code == 0, result.err
    assert "[5/5] Frontier from 8, τ 0.999, exact · tiny-math: 1/1" in result.err
    assert len(table(tmp_path / "out", "stress")) == 5
    assert "The best fixed length is" in result.out


def test_the_picture_names_every_start_also_those_of_later_sections(
    byte_checkpoint: Path, tmp_path: Path, no_picture: None
) -> None:
    study = study_of(byte_checkpoint, tmp_path)
    for threshold, lengths in (("0.999", ["8"]), ("0.9", ["4", "8"])):
        part = {"policies": ["fixed"], "lengths": lengths, "thresholds": [threshold]}
        run(study, survey(**part, caches=["none"]), Deceived())
    figure = draw(findings(study, survey()))
    [legend] = [axes.get_legend() for axes in figure.axes if axes.get_legend() is not None]
    assert [text.get_text() for text in legend.get_texts()] == ["4", "8"]


def test_the_picture_leaves_out_a_section_of_one_policy(
    byte_checkpoint: Path, tmp_path: Path, no_picture: None
) -> None:
    study = study_of(byte_checkpoint, tmp_path)
    for threshold, names in (("0.999", ["fixed"]), ("0.9", ["fixed", "frontier"])):
        part = {"policies": names, "thresholds": [threshold], "caches": ["none"]}
        run(study, survey(**part), Deceived())
    titles = [
        axes.get_title() or axes.get_title("left") for axes in draw(findings(study, survey())).axes
    ]
    assert [title for title in titles if title] == ["τ 0.9, exact"]
