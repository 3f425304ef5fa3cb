"""What a run showed: the metrics of docs/method.md §7, each a mean over samples with its error.

Repeats of a sample are averaged first: they are not further samples, and must not make an error
smaller than it is. E_ratio is the ratio of the averages.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rho_eos.evals.runs.run_folder import Line, write_json
from rho_eos.evals.runs.stats import Estimate, mean_of, ratio_of_means
from rho_eos.evals.runs.table import Table

#: Column: the field of a line, and its decimals. E_ratio, of the first two, stands behind them.
COSTS = {
    "E_token": ("e_token", 1),
    "N_token": ("n_token", 1),
    "NFE": ("nfe", 1),
    "positions": ("positions_evaluated", 0),
    "exact": ("positions_exact", 0),
    "refreshes": ("refreshes", 1),
    "reused": ("positions_reused", 0),
    "tokens/NFE": ("tokens_per_forward", 2),
    "Step": ("adjustments", 1),
}
#: Columns that say nothing new where no forward used a cache; they are shown only if one did.
OF_THE_CACHE = ("exact", "refreshes")
NONE = "–"


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """One row of a table. `costs` is empty where no model was asked."""

    task: str
    samples: int
    repeats: int
    accuracy: Estimate
    costs: dict[str, Estimate]
    e_ratio: Estimate | None
    seconds: float  # T_runtime of one repeat: generation, without loading the model

    @property
    def reused(self) -> bool:
        """Whether positions of a prompt were kept from other requests. Older runs do not say."""
        return "positions_reused" in self.costs and self.costs["positions_reused"].mean > 0

    @property
    def cached(self) -> bool:
        """Whether some forward computed fewer positions than there were."""
        costs = self.costs
        return bool(costs) and costs["positions_evaluated"].mean < costs["positions_exact"].mean


def summarise(lines: Iterable[Line]) -> list[TaskSummary]:
    """A summary for each task, in the order in which they occur."""
    by_task: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_task[line["task"]].append(line)
    return [_summarise_task(task, of_task) for task, of_task in by_task.items()]


def per_sample(lines: Iterable[Line], field: str) -> dict[str, float]:
    """The field's value for each sample, averaged over its repeats; in order of the samples."""
    values: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        values[line["sample"]].append(float(line[field]))
    return {sample: sum(each) / len(each) for sample, each in sorted(values.items())}


def _summarise_task(task: str, lines: list[Line]) -> TaskSummary:
    asked = all("nfe" in line for line in lines)
    known = set.intersection(*(set(line) for line in lines)) if asked else set()
    fields = ["correct", *(field for field, _ in COSTS.values() if field in known)]
    values = {field: list(per_sample(lines, field).values()) for field in fields}
    costs = {field: mean_of(each) for field, each in values.items()}
    accuracy = costs.pop("correct")
    repeats = len({line["repeat"] for line in lines})
    e_ratio = ratio_of_means(values["e_token"], values["n_token"]) if asked else None
    last: dict[int, float] = {}  # when the last answer came, in each session that was needed
    for line in lines:
        last[line["session"]] = max(last.get(line["session"], 0.0), line["elapsed"])
    seconds = sum(last.values()) / repeats
    return TaskSummary(task, len(values["correct"]), repeats, accuracy, costs, e_ratio, seconds)


def summary_table(runs: Sequence[tuple[str, Sequence[TaskSummary]]], heading: str = "run") -> Table:
    """Runs side by side, grouped by task: what is to be compared stands together."""
    rows = [(name, summary) for name, of_run in runs for summary in of_run]
    tasks = list(dict.fromkeys(summary.task for _, summary in rows))
    hidden: set[str] = set()
    if not any(summary.cached for _, summary in rows):
        hidden |= {*OF_THE_CACHE}
    if not any(summary.reused for _, summary in rows):
        hidden |= {"reused"}
    costs = [column for column in COSTS if column not in hidden]
    rows.sort(key=lambda row: tasks.index(row[1].task))
    columns = [heading, "task", "n", "Acc %", *costs[:2], "E_ratio %", *costs[2:], "seconds"]
    return Table(columns, [_cells(*row, costs) for row in rows], labels=2)


def _cells(name: str, summary: TaskSummary, columns: Sequence[str]) -> list[str]:
    costs = [shown(summary.costs.get(COSTS[each][0]), COSTS[each][1]) for each in columns]
    e_ratio = shown(summary.e_ratio, 1, scale=100)
    return [
        name,
        summary.task,
        count(summary.samples, summary.repeats),
        shown(summary.accuracy, 1, scale=100),
        *(*costs[:2], e_ratio, *costs[2:]),
        f"{summary.seconds:.0f}" if summary.costs else NONE,
    ]


def count(samples: int, repeats: int) -> str:
    return f"{samples}×{repeats}" if repeats > 1 else f"{samples}"


def shown(estimate: Estimate | None, decimals: int, scale: float = 1) -> str:
    """A mean with its standard error, for a table."""
    if estimate is None:
        return NONE
    mean = f"{estimate.mean * scale:.{decimals}f}"
    return mean if estimate.error is None else f"{mean} ± {estimate.error * scale:.{decimals}f}"


def write_summary(folder: Path, lines: Iterable[Line]) -> list[TaskSummary]:
    """summary.json and summary.{md,csv,tex} beside the samples."""
    summaries = summarise(lines)
    write_json(folder / "summary.json", [asdict(summary) for summary in summaries])
    summary_table([(folder.name, summaries)]).write(folder / "summary")
    return summaries
