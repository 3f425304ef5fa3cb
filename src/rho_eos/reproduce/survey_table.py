"""What a survey shows: all tasks as one, a row for each policy from each initial length."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from rho_eos.base.outputs import FinishReason
from rho_eos.evals.runs.compare import compare
from rho_eos.evals.runs.report import NONE, TaskSummary, per_sample, shown, summarise
from rho_eos.evals.runs.run_folder import Line
from rho_eos.evals.runs.table import Table
from rho_eos.reproduce.cells import Study
from rho_eos.reproduce.plan import Row
from rho_eos.reproduce.survey import FIXED, Survey, SurveyRow
from rho_eos.reproduce.tables import Result, samples_note

ALL = "all tasks"
VERDICT = ".** "  # what a verdict has behind the name of its section, and nothing else has
SHORT = 0.9  # a text of less than this share of its reference is short
CLOSE = 0.005  # accuracy: this far behind the best fixed length is as good as it
DECEIVED, SURE = 0.05, 0.05  # accuracy: so far behind it, with p below the second

COLUMNS = (
    *("section", "policy", "L_init", "n", "Acc %", "Δ fixed", "E_ratio %", "N_token"),
    *("NFE", "positions", "of Asym %", "edits", "ended early %"),
)
EXPLAINED = (
    "Δ fixed: points of accuracy against the best fixed length of the section on these very "
    "samples, the hardest opponent. positions: computed, of an answer; of Asym %: of what ρ-EOS "
    "Asym computes from the same L_init. edits: changes of the length. ended early: wrong, with "
    "the canvas full before an end of text, or a text shorter than nine tenths of the reference."
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A finished row of a survey: its answers of all tasks, as one."""

    row: SurveyRow
    summary: TaskSummary
    early: float  # the share of answers that ended before they were complete
    lines: Sequence[Line] = ()  # the answers themselves, where they are at hand

    @property
    def name(self) -> str:
        return f"{self.row.contender.label} from {self.row.start}"

    @property
    def is_fixed(self) -> bool:
        return self.row.contender.name == FIXED

    @property
    def accuracy(self) -> float:
        return self.summary.accuracy.mean

    @property
    def positions(self) -> float:
        return self.summary.costs["positions_evaluated"].mean


def ended_early(line: Line) -> bool:
    """Wrong, and not because of what was written: there was no room, or the text is short."""
    if line["correct"]:
        return False
    full = line["finish_reason"] == FinishReason.LENGTH.value
    return full or len(line["text"].rstrip()) < SHORT * len(line["reference"].rstrip())


def findings(study: Study, survey: Survey) -> list[Finding]:
    """All rows whose every cell is finished, in the order of the survey."""
    found = [_finding(study, row, survey.tasks) for row in survey.every]
    return comparable([each for each in found if each is not None])


def comparable(found: Sequence[Finding]) -> list[Finding]:
    """Less those of a policy with one run for all starts from where no other policy started."""
    starts: dict[str, set[int]] = {}
    for each in found:
        if not each.is_fixed and not each.row.params.starts_anywhere:
            starts.setdefault(each.row.section, set()).add(each.row.start)
    return [
        each
        for each in found
        if not each.row.params.starts_anywhere
        or each.row.start in starts.get(each.row.section, {each.row.start})
    ]


def _finding(study: Study, row: Row, tasks: Sequence[str]) -> Finding | None:
    assert isinstance(row, SurveyRow)
    cells = [study.cell(row, task) for task in tasks]
    if not all(cell.finished for cell in cells):
        return None
    lines = [
        line | {"task": ALL, "early": ended_early(line)} for cell in cells for line in cell.lines()
    ]
    [summary] = summarise(lines)
    early = float(np.mean(list(per_sample(lines, "early").values())))
    return Finding(row, summary, early, lines)


def survey_of(study: Study, survey: Survey) -> Result:
    model = f"{study.config.model} (weights {study.weights[:8]})"
    asked = f"{model}, {samples_note(study)}: {', '.join(survey.tasks)}."
    return result_of(survey, findings(study, survey), asked)


def result_of(survey: Survey, found: Sequence[Finding], asked: str) -> Result:
    """The table and what it says; `asked` are the words for whom and what was asked."""
    rows: list[list[str]] = []
    notes = [asked, EXPLAINED]
    for section, members in groupby(found, key=lambda finding: finding.row.section):
        of_section = list(members)
        best = best_fixed(of_section)
        asym = {each.row.start: each for each in of_section if each.row.contender.name == "asym"}
        rows += [_cells(section, each, best, asym.get(each.row.start)) for each in of_section]
        notes += _spoken(section, of_section, best)
    table = Table(COLUMNS, rows, labels=3)
    return Result(survey.name, survey.title, table, "\n\n".join(notes), section="section")


def best_fixed(of_section: Sequence[Finding]) -> Finding | None:
    """The most accurate fixed length; of equals, the cheaper."""
    fixed = [each for each in of_section if each.is_fixed]
    return max(fixed, key=lambda each: (each.accuracy, -each.positions), default=None)


def _cells(section: str, finding: Finding, best: Finding | None, asym: Finding | None) -> list[str]:
    summary = finding.summary
    behind = NONE if best is None else f"{100 * (finding.accuracy - best.accuracy):+.1f}"
    share = NONE if asym is None else f"{100 * finding.positions / asym.positions:.0f}"
    return [
        section,
        finding.row.contender.label,
        f"{finding.row.start}",
        f"{summary.samples}" + (f"×{summary.repeats}" if summary.repeats > 1 else ""),
        shown(summary.accuracy, 1, scale=100),
        behind,
        shown(summary.e_ratio, 1, scale=100),
        f"{summary.costs['n_token'].mean:.1f}",
        f"{summary.costs['nfe'].mean:.1f}",
        shown(summary.costs["positions_evaluated"], 0),
        share,
        f"{summary.costs['adjustments'].mean:.1f}",
        f"{100 * finding.early:.1f}",
    ]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a section says of the policies, beside its best fixed length."""

    cost: Mapping[str, float]  # positions of those that keep up with it, the cheapest first
    nearest: str | None  # the policy that falls back least, and by how much where that is most
    behind: float
    deceived: Mapping[str, Sequence[str]]

    @property
    def choice(self) -> str | None:
        """The policy to use; a fixed length where every other one is deceived."""
        nearest = FIXED if self.nearest in self.deceived else self.nearest
        return next(iter(self.cost), nearest)


def verdict(of_section: Sequence[Finding], best: Finding) -> Verdict:
    """Which policies keep up with the best fixed length from everywhere, and who is deceived."""
    by_policy: dict[str, list[Finding]] = {}
    for each in of_section:
        if not each.is_fixed:
            by_policy.setdefault(each.row.contender.label, []).append(each)
    starts = {each.row.start for members in by_policy.values() for each in members}
    whole = {label: members for label, members in by_policy.items() if len(members) == len(starts)}
    behind = {
        label: max(best.accuracy - each.accuracy for each in members)
        for label, members in whole.items()
    }
    cost = {
        label: sum(each.positions for each in members) / len(members)
        for label, members in whole.items()
        if behind[label] <= CLOSE + 1e-9
    }
    nearest = min(behind, key=lambda label: behind[label], default=None)
    return Verdict(
        dict(sorted(cost.items(), key=lambda item: item[1])),
        nearest,
        behind[nearest] if nearest else 0.0,
        _deceived(by_policy, best),
    )


def _spoken(section: str, of_section: Sequence[Finding], best: Finding | None) -> list[str]:
    """The verdict of a section in sentences."""
    begin = f"**{section}{VERDICT}"
    labels = {each.row.contender.label for each in of_section}
    if len(labels) == 1:
        return [f"{begin}Only {labels.pop()} was run, so there is nothing to compare it with."]
    if best is None:
        return [
            f"{begin}No fixed length was run, so nothing says how often this model can be right, "
            "and no policy is recommended: run `fixed`, too."
        ]
    found = verdict(of_section, best)
    if found.choice is None:
        return [
            f"{begin}No policy was run from all the initial lengths of the others, so none is "
            "recommended."
        ]
    sentences = [f"{begin}The best fixed length is {best.row.start}."]
    if found.cost:
        listed = ", ".join(f"{label} ({cost:,.0f})" for label, cost in found.cost.items())
        sentences.append(
            f"Within {100 * CLOSE:g} points of it from every L_init, the cheapest first "
            f"(positions, averaged over L_init): {listed}."
        )
    else:
        sentences.append(
            f"No policy is within {100 * CLOSE:g} points of it from every L_init; "
            f"{found.nearest} is at most {100 * found.behind:.1f} behind."
        )
    listed = "; ".join(f"{label} from {', '.join(at)}" for label, at in found.deceived.items())
    sentences.append(
        f"Deceived (at least {100 * DECEIVED:g} points behind it, p < {SURE:g}): "
        f"{listed or 'none'}."
    )
    one = 1 / best.summary.samples
    choice = f"{FIXED} {best.row.start}" if found.choice == FIXED else found.choice
    sentences.append(
        f"**Use {choice}.**"
        if one <= CLOSE
        else f"A first look, no more: of {best.summary.samples} samples one is "
        f"{100 * one:.1f} points. It speaks for {choice}."
    )
    return [" ".join(sentences)]


def _deceived(by_policy: Mapping[str, Sequence[Finding]], best: Finding) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for label, members in by_policy.items():
        for each in members:
            if best.accuracy - each.accuracy >= DECEIVED and _chance(each, best) < SURE:
                found.setdefault(label, []).append(f"{each.row.start}")
    return found


def _chance(finding: Finding, rival: Finding) -> float:
    """p that both are right equally often: of the same answers, or else of two independent rows."""
    if finding.lines and rival.lines:
        changes = compare(finding.lines, rival.lines)
        return next(each.p for each in changes if each.metric == "Acc")
    one, other = finding.summary.accuracy, rival.summary.accuracy
    error = math.hypot(one.error or 0.0, other.error or 0.0)
    if not error:
        return float(one.mean == other.mean)
    return math.erfc(abs(one.mean - other.mean) / (error * math.sqrt(2)))
