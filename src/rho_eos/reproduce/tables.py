"""The tables: our numbers, the paper's beside them where the model is one of its own."""

from collections.abc import Sequence

from rho_eos.evals.runs.compare import Change, compare
from rho_eos.evals.runs.report import NONE, summarise, summary_table
from rho_eos.evals.runs.run_folder import Line
from rho_eos.evals.runs.table import Table
from rho_eos.evals.studies.contenders import DAEDAL, RHO_ASYM, RHO_SYM
from rho_eos.evals.studies.result import Result
from rho_eos.evals.studies.study import Plan, Study
from rho_eos.reproduce.plan import threshold_label
from rho_eos.reproduce.profiles import PAPER, Profile
from rho_eos.reproduce.published import SOURCE, find_published, paper_model

#: Our column, the published field, its decimals.
PUBLISHED_COLUMNS = (
    ("Acc %", "accuracy", 1),
    ("E_token", "e_token", 1),
    ("N_token", "n_token", 1),
    ("E_ratio %", "e_ratio", 1),
    ("Step", "step", 1),
    ("seconds", "seconds", 0),
)
ONE_TOKEN = "One token a step is as published: the canvas is decoded to its end."
SOME_ONE_TOKEN = (
    " In this profile it is run at lengths up to {longest} and on at most {samples} samples: mind "
    "n before comparing seconds."
)
COMPARISON = "ρ-EOS against fixed length and DAEDAL"
BEST_FIXED = (
    "The best fixed length is the one with the highest accuracy on these very samples (the cheaper "
    "of equals): nobody knows it beforehand, so this is the hardest opponent. Acc is a difference "
    "in points, positions a multiple; intervals are paired bootstraps, p is McNemar's exact test."
)


def table_of(study: Study, profile: Profile, plan: Plan) -> Result:
    runs = [
        (
            row.label,
            [one for task in plan.tasks for one in summarise(study.cell(row, task).lines())],
        )
        for row in plan.rows
    ]
    ours = summary_table(runs)
    table = Table([plan.heading, *ours.columns[1:]], ours.rows, ours.labels)
    beside = _beside_published(paper_model(study.config.model), plan.name, table)
    return Result(plan.name, plan.title, beside, [_note(study, profile, plan)])


def _beside_published(model: str | None, name: str, table: Table) -> Table:
    """Each published column directly after ours; none that would be empty."""
    found = [find_published(model, name, row[1], row[0]) for row in table.rows]
    columns = list(table.columns)
    rows = [list(row) for row in table.rows]
    for column, field, decimals in PUBLISHED_COLUMNS:
        values = [getattr(numbers, field, None) for numbers in found]
        if not any(value is not None for value in values):
            continue
        at = columns.index(column) + 1
        columns.insert(at, f"paper {column}")
        for row, value in zip(rows, values, strict=True):
            row.insert(at, NONE if value is None else f"{value:.{decimals}f}")
    return Table(columns, rows, table.labels)


def _note(study: Study, profile: Profile, plan: Plan) -> str:
    asked = study.samples_note()
    notes = [f"{study.config.model}, {asked}; mean ± standard error over samples."]
    if profile is not PAPER:
        notes.append(
            f"Lengths are those of the profile {profile.name}: L_init {profile.initial_length}, "
            f"L_max {profile.max_length}, blocks of {profile.scale.block_length}; "
            "the paper's are 64, 2048 and 32."
        )
    if plan.name == "main":
        longest, samples = max(profile.one_token_lengths), profile.one_token_samples
        some = "" if samples is None else SOME_ONE_TOKEN.format(longest=longest, samples=samples)
        notes.append(ONE_TOKEN + some)
    if paper_model(study.config.model):
        notes.append(f"paper: {SOURCE}, on whole benchmarks, three repeats; its own machine.")
    return " ".join(notes)


def comparison_of(study: Study, profile: Profile, main: Plan) -> Result:
    """ρ-EOS against the best fixed length under the same commit rule, and against DAEDAL."""
    rows = []
    fixed = [threshold_label(length) for length in profile.fixed_lengths]
    for task in main.tasks:
        lines = {row.label: study.cell(row, task).lines() for row in main.rows}
        best = max(fixed, key=lambda label: _merit(lines[label]))
        for policy in (RHO_ASYM, RHO_SYM):
            for rival in (best, DAEDAL):
                changes = {each.metric: each for each in compare(lines[policy], lines[rival])}
                rows.append([policy, task, rival, *_cells(changes["Acc"], changes["positions"])])
    columns = (
        *("policy", "task", "against", "n"),
        *("Acc", "Acc 95%", "p", "positions", "positions 95%"),
    )
    return Result("comparison", COMPARISON, Table(columns, rows, labels=3), [BEST_FIXED])


def _merit(lines: Sequence[Line]) -> tuple[float, float]:
    """More accurate is better; of equals, cheaper."""
    [summary] = summarise(lines)
    return summary.accuracy.mean, -summary.costs["positions_evaluated"].mean


def _cells(accuracy: Change, cost: Change) -> list[str]:
    change, interval, p = accuracy.shown()
    return [f"{accuracy.samples}", change, interval, p, *cost.shown()[:2]]
