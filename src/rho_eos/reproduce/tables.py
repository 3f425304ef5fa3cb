"""The tables: our numbers, the paper's beside them where the model is one of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from rho_eos.evals.runs.compare import compare
from rho_eos.evals.runs.report import NONE, TaskSummary, summarise, summary_table
from rho_eos.evals.runs.run_folder import Line
from rho_eos.evals.runs.table import Table
from rho_eos.reproduce.cells import Study
from rho_eos.reproduce.plan import DAEDAL, RHO_ASYM, RHO_SYM, Plan, threshold_label
from rho_eos.reproduce.published import SOURCE, Published, find_published, paper_model

#: Our column, the published field, its decimals.
PUBLISHED_COLUMNS = (
    ("Acc %", "accuracy", 1),
    ("E_token", "e_token", 1),
    ("N_token", "n_token", 1),
    ("E_ratio %", "e_ratio", 1),
    ("Step", "step", 1),
    ("seconds", "seconds", 0),
)
SOME_ONE_TOKEN = (
    "One token a step is as published: the canvas is decoded to its end. In this profile it is run "
    "at lengths up to {longest} and on at most {samples} samples: mind n before comparing seconds."
)
ALL_ONE_TOKEN = "One token a step is as published: the canvas is decoded to its end."
BEST_FIXED = (
    "The best fixed length is the one with the highest accuracy on these very samples (the cheaper "
    "of equals): nobody knows it beforehand, so this is the hardest opponent. Acc is a difference "
    "in points, positions a multiple; intervals are paired bootstraps, p is McNemar's exact test."
)


@dataclass(frozen=True, slots=True)
class Result:
    """A finished table with what a reader must know about it."""

    name: str
    title: str
    table: Table
    note: str
    section: str = "task"  # the column whose values part the table into several

    def write(self, folder: Path) -> None:
        self.table.write(folder / self.name)  # .csv and .tex are the bare table
        (folder / f"{self.name}.md").write_text(self.markdown(), encoding="utf-8")

    def markdown(self) -> str:
        parts = [f"# {self.title}\n"]
        for section, table in self.sections():
            parts.append(f"**{section}**\n\n{table.markdown()}")
        return "\n".join([*parts, f"{self.note}\n"])

    def sections(self) -> list[tuple[str, Table]]:
        """The same rows, a table for each section; that column is gone."""
        table = self.table
        at = list(table.columns).index(self.section)

        def without(row: Sequence[str]) -> list[str]:
            return [*row[:at], *row[at + 1 :]]

        return [
            (name, Table(without(table.columns), [without(row) for row in rows], table.labels - 1))
            for name, rows in groupby(table.rows, key=lambda row: row[at])
        ]


def table_of(study: Study, plan: Plan) -> Result:
    runs = [(row.label, _summaries(study, plan, number)) for number, row in enumerate(plan.rows)]
    ours = summary_table(runs)
    table = Table([plan.heading, *ours.columns[1:]], ours.rows, ours.labels)
    return Result(plan.name, plan.title, _beside_published(study, plan, table), _note(study, plan))


def _summaries(study: Study, plan: Plan, number: int) -> list[TaskSummary]:
    cells = [study.cell(plan.rows[number], task) for task in plan.tasks]
    return [summary for cell in cells for summary in summarise(cell.lines())]


def _beside_published(study: Study, plan: Plan, table: Table) -> Table:
    """Each published column directly after ours; none that would be empty."""
    model = paper_model(study.config.model)
    found = [find_published(model, plan.name, row[1], row[0]) for row in table.rows]
    columns = list(table.columns)
    rows = [list(row) for row in table.rows]
    for column, field, decimals in PUBLISHED_COLUMNS:
        cells = [_published_cell(numbers, field, decimals) for numbers in found]
        if set(cells) <= {NONE}:
            continue
        at = columns.index(column) + 1
        columns.insert(at, f"paper {column}")
        for row, cell in zip(rows, cells, strict=True):
            row.insert(at, cell)
    return Table(columns, rows, table.labels)


def _published_cell(numbers: Published | None, field: str, decimals: int) -> str:
    value = None if numbers is None else getattr(numbers, field)
    return NONE if value is None else f"{value:.{decimals}f}"


def _note(study: Study, plan: Plan) -> str:
    profile = study.profile
    notes = [f"{study.config.model}, {samples_note(study)}; mean ± standard error over samples."]
    if profile.initial_length != 64:
        notes.append(
            f"Lengths are those of the profile {profile.name}: L_init {profile.initial_length}, "
            f"L_max {profile.max_length}, blocks of {profile.block_length}; "
            "the paper's are 64, 2048 and 32."
        )
    if plan.name == "main":
        limited = profile.one_token_samples is not None
        notes.append(
            SOME_ONE_TOKEN.format(
                longest=max(profile.one_token_lengths), samples=profile.one_token_samples
            )
            if limited
            else ALL_ONE_TOKEN
        )
    if paper_model(study.config.model):
        notes.append(f"paper: {SOURCE}, on whole benchmarks, three repeats; its own machine.")
    return " ".join(notes)


def samples_note(study: Study) -> str:
    """Which samples were asked, in words."""
    asked = "all samples"
    if study.limit is not None:
        asked = f"the {'' if study.skip else 'first '}{study.limit} samples of a task"
        if study.shuffle_seed is not None:
            asked = f"{study.limit} samples drawn with seed {study.shuffle_seed}"
    asked += f" behind the first {study.skip}" if study.skip else ""
    return asked + (f", {study.repeats} times" if study.repeats > 1 else "")


def comparison_of(study: Study, main: Plan) -> list[Result]:
    """ρ-EOS against the best fixed length under the same commit rule, and against DAEDAL."""
    rows = []
    fixed = {threshold_label(length) for length in study.profile.fixed_lengths}
    for task in main.tasks:
        lines = {row.label: study.cell(row, task).lines() for row in main.rows}
        best = max((label for label in lines if label in fixed), key=lambda n: _merit(lines[n]))
        for policy in (RHO_ASYM, RHO_SYM):
            for rival in (best, DAEDAL):
                rows.append([policy, task, rival, *_changes(lines[policy], lines[rival])])
    columns = (
        *("policy", "task", "against", "n"),
        *("Acc", "Acc 95%", "p", "positions", "positions 95%"),
    )
    table = Table(columns, rows, labels=3)
    return [Result("comparison", "ρ-EOS against fixed length and DAEDAL", table, BEST_FIXED)]


def _merit(lines: Sequence[Line]) -> tuple[float, float]:
    """More accurate is better; of equals, cheaper."""
    [summary] = summarise(lines)
    return summary.accuracy.mean, -summary.costs["positions_evaluated"].mean


def _changes(lines: Sequence[Line], rival: Sequence[Line]) -> list[str]:
    changes = {change.metric: change for change in compare(lines, rival)}
    accuracy, cost = changes["Acc"], changes["positions"]
    low, high = (100 * end for end in accuracy.interval)
    return [
        f"{accuracy.samples}",
        f"{100 * accuracy.change:+.1f}",
        f"{low:+.1f} to {high:+.1f}",
        "<0.001" if accuracy.p < 0.001 else f"{accuracy.p:.3f}",
        f"×{cost.change:.2f}",
        f"{cost.interval[0]:.2f} to {cost.interval[1]:.2f}",
    ]
