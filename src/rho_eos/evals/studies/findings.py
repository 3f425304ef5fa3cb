"""What a survey found: its rows as numbers, the verdict on each section, and the table of both."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rho_eos.base.outputs import FinishReason
from rho_eos.evals.runs.compare import compare
from rho_eos.evals.runs.report import NONE, count, per_sample, shown, summarise
from rho_eos.evals.runs.run_folder import Line
from rho_eos.evals.runs.stats import Estimate, mean_of
from rho_eos.evals.runs.table import Table
from rho_eos.evals.studies.contenders import FIXED, RHO_ASYM, contenders
from rho_eos.evals.studies.study import Result, Study, StudyRow

SHORT = 0.9  # a text of less than this share of its reference is short
CLOSE = 0.005  # accuracy: this far behind the best fixed length is as good as it
DECEIVED, SURE = 0.05, 0.05  # accuracy: so far behind it, with p below the second

COLUMNS = (
    *("section", "policy", "L_init", "n", "Acc %", "Δ fixed", "E_ratio %", "N_token"),
    *("NFE", "positions", "of Asym %", "edits", "ended early %"),
)
EXPLAINED = (
    "L_init any: it makes no difference. Δ fixed: points of accuracy against the best fixed length "
    "of the section on these very samples, the hardest opponent. positions: computed, of an "
    "answer; of Asym %: of what ρ-EOS Asym computes from the same L_init, or on average. edits: "
    "changes of the length. ended early: wrong, with the canvas full before an end of text, or a "
    "text shorter than nine tenths of the reference."
)


#: What a finding calls the costs of a summary.
COSTS = {
    "positions": "positions_evaluated",
    "n_token": "n_token",
    "nfe": "nfe",
    "edits": "adjustments",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A finished row: the answers to all tasks taken as one."""

    section: str
    policy: str  # as the table calls it
    start: int | None  # None: one run stands for every initial length
    samples: int
    repeats: int
    accuracy: Estimate
    e_ratio: Estimate
    positions: Estimate
    n_token: Estimate
    nfe: Estimate
    edits: Estimate
    early: Estimate  # the share of answers that ended before they were complete
    lines: Sequence[Line] = ()  # the answers themselves, where they are at hand

    def as_dict(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(replace(self, lines=())).items() if k != "lines"}


def findings(study: Study, rows: Iterable[StudyRow], tasks: Sequence[str]) -> list[Finding]:
    """The findings of all rows whose cells are all finished."""
    found = []
    for row in rows:
        cells = [study.cell(row, task) for task in tasks]
        if not all(cell.finished for cell in cells):
            continue
        answers = [line for cell in cells for line in cell.lines()]
        lines = [line | {"task": "all tasks", "early": ended_early(line)} for line in answers]
        [summary] = summarise(lines)
        assert summary.e_ratio is not None
        one = Finding(
            section=row.section,
            policy=row.series,
            start=row.start,
            samples=summary.samples,
            repeats=summary.repeats,
            accuracy=summary.accuracy,
            e_ratio=summary.e_ratio,
            early=mean_of(list(per_sample(lines, "early").values())),
            lines=lines,
            **{name: summary.costs[field] for name, field in COSTS.items()},
        )
        found.append(one)
    return found


def ended_early(line: Line) -> bool:
    """Whether an answer is wrong for want of text: there was no room, or it is much too short."""
    if line["correct"]:
        return False
    full = line["finish_reason"] == FinishReason.LENGTH.value
    return full or len(line["text"].rstrip()) < SHORT * len(line["reference"].rstrip())


def by_section(found: Iterable[Finding]) -> dict[str, list[Finding]]:
    """A list for each section, in which policies stand as contenders are listed, short to long."""
    labels = [contender.label for contender in contenders()]
    sections: dict[str, list[Finding]] = {}
    for each in found:
        sections.setdefault(each.section, []).append(each)
        if each.policy not in labels:  # of a plugin that is not here now
            labels.append(each.policy)
    for members in sections.values():
        members.sort(key=lambda each: (labels.index(each.policy), each.start or 0))
    return sections


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a section says of its policies, beside its best fixed length."""

    samples: int
    best_fixed: int | None = None  # the most accurate fixed length; of equals, the cheaper
    #: Accuracy lost at most, by policies that were run from every initial length.
    behind: Mapping[str, float] = field(default_factory=dict)
    #: Positions of those that keep up with the best fixed length, the cheapest first.
    cost: Mapping[str, float] = field(default_factory=dict)
    deceived: Mapping[str, Sequence[int | None]] = field(default_factory=dict)  # and from where
    choice: str | None = None  # what to use; a fixed length where every policy is deceived

    def says(self) -> str:
        """The verdict in sentences."""
        if self.choice is None:
            return (
                "Nothing is recommended: that takes fixed lengths, which say how often this model "
                "can be right, and another policy that was run from all the initial lengths."
            )
        kept_up = ", ".join(f"{policy} ({cost:,.0f})" for policy, cost in self.cost.items())
        close = f"{100 * CLOSE:g} points of it from every L_init"
        nearest = min(self.behind, key=self.behind.__getitem__)
        deceived = "; ".join(
            f"{name} from {', '.join(map(start_name, at))}" for name, at in self.deceived.items()
        )
        one = 1 / self.samples
        return " ".join([
            f"The best fixed length is {self.best_fixed}.",
            f"Within {close}, the cheapest first (positions, averaged over L_init): {kept_up}."
            if kept_up
            else f"No policy is within {close}; {nearest} is at most "
            f"{100 * self.behind[nearest]:.1f} behind.",
            f"Deceived (at least {100 * DECEIVED:g} points behind it, p < {SURE:g}): "
            f"{deceived or 'none'}.",
            f"**Use {self.choice}.**"
            if one <= CLOSE
            else f"A first look, no more: of {self.samples} samples one is {100 * one:.1f} points. "
            f"It speaks for {self.choice}.",
        ])  # fmt: skip


def start_name(start: int | None) -> str:
    return "any" if start is None else f"{start}"


def best_fixed(of_section: Sequence[Finding]) -> Finding | None:
    fixed = [each for each in of_section if each.policy == FIXED]
    return max(fixed, key=lambda each: (each.accuracy.mean, -each.positions.mean), default=None)


def verdict(of_section: Sequence[Finding]) -> Verdict:
    """Which policies keep up with the best fixed length from everywhere, and who is deceived."""
    best, samples = best_fixed(of_section), of_section[0].samples
    if best is None:
        return Verdict(samples)
    others = [each for each in of_section if each.policy != FIXED]
    starts = {each.start for each in others if each.start is not None}
    behind, cost, deceived = {}, {}, {}
    for policy in dict.fromkeys(each.policy for each in others):
        members = [each for each in others if each.policy == policy]
        at = [each.start for each in members if _is_deceived(each, best)]
        if at:
            deceived[policy] = at
        if {each.start for each in members} in ({None}, starts):
            behind[policy] = max(best.accuracy.mean - each.accuracy.mean for each in members)
            if behind[policy] <= CLOSE + 1e-9:
                cost[policy] = sum(each.positions.mean for each in members) / len(members)
    cost = dict(sorted(cost.items(), key=lambda item: item[1]))
    choice = next(iter(cost), min(behind, key=behind.__getitem__, default=None))
    if choice in deceived:
        choice = f"{FIXED} {best.start}"
    return Verdict(samples, best.start, behind, cost, deceived, choice)


def _is_deceived(found: Finding, best: Finding) -> bool:
    """Whether a row is far behind the best fixed length, and not by chance.

    That is tested on the same answers; where they are not at hand, as on independent samples.
    """
    gap = best.accuracy.mean - found.accuracy.mean
    if gap < DECEIVED:
        return False
    if found.lines and best.lines:
        [p] = [each.p for each in compare(found.lines, best.lines) if each.metric == "Acc"]
        return p < SURE
    error = math.hypot(found.accuracy.error or 0.0, best.accuracy.error or 0.0)
    return not error or math.erfc(gap / (error * math.sqrt(2))) < SURE


def result_of(name: str, title: str, found: Sequence[Finding], facts: Mapping[str, Any]) -> Result:
    """The table and what it says. `facts["words"]` tells readers who was asked what."""
    rows, verdicts, sections = [], {}, by_section(found)
    for section, members in sections.items():
        best = best_fixed(members)
        asym = {each.start: each.positions.mean for each in members if each.policy == RHO_ASYM}
        asym |= {None: sum(asym.values()) / len(asym)} if asym else {}
        rows += [_cells(each, best, asym.get(each.start)) for each in members]
        said = verdict(members)
        verdicts[section] = {**asdict(said), "says": said.says()}
    return Result(
        name,
        title,
        Table(COLUMNS, rows, labels=3),
        [facts["words"], EXPLAINED],
        section="section",
        verdicts=verdicts,
        facts={**facts, "findings": [one.as_dict() for each in sections.values() for one in each]},
        picture=name,
    )


def _cells(found: Finding, best: Finding | None, asym: float | None) -> list[str]:
    gain = None if best is None else 100 * (found.accuracy.mean - best.accuracy.mean)
    share = None if asym is None else 100 * found.positions.mean / asym
    return [
        found.section,
        found.policy,
        start_name(found.start),
        count(found.samples, found.repeats),
        shown(found.accuracy, 1, scale=100),
        NONE if gain is None else f"{gain:+.1f}",
        shown(found.e_ratio, 1, scale=100),
        f"{found.n_token.mean:.1f}",
        f"{found.nfe.mean:.1f}",
        shown(found.positions, 0),
        NONE if share is None else f"{share:.0f}",
        f"{found.edits.mean:.1f}",
        f"{100 * found.early.mean:.1f}",
    ]
