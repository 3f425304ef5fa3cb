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

#: Field of a line, heading, decimals.
COSTS = (
    ("e_token", "E_token", 1),
    ("n_token", "N_token", 1),
    ("nfe", "NFE", 1),
    ("positions_evaluated", "positions", 0),
    ("positions_exact", "exact", 0),
    ("refreshes", "refreshes", 1),
    ("tokens_per_forward", "tokens/NFE", 2),
    ("adjustments", "Step", 1),
)
COLUMNS = (
    *("run", "task", "n", "Acc %", "E_token", "N_token", "E_ratio %"),
    *("NFE", "positions", "exact", "refreshes", "tokens/NFE", "Step", "seconds"),
)
#: Columns that say nothing new where no forward used a cache; they are shown only if one did.
OF_THE_CACHE = ("exact", "refreshes")
#: What a line holds instead of a field, if it was written before there was a cache.
_BEFORE_THE_CACHE = {"positions_exact": "positions_evaluated", "refreshes": "nfe"}
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
    def cached(self) -> bool:
        """Whether some forward computed fewer positions than there were."""
        costs = self.costs
        return bool(costs) and costs["positions_evaluated"].mean < costs["positions_exact"].mean


def summarise(lines: Iterable[Line]) -> list[TaskSummary]:
    by_task: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_task[line["task"]].append(line)
    return [_summarise_task(task, of_task) for task, of_task in by_task.items()]


def per_sample(lines: Iterable[Line], field: str) -> dict[str, float]:
    """The field's value for each sample, averaged over its repeats; in order of the samples."""
    values: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        known = field if field in line else _BEFORE_THE_CACHE.get(field, field)
        values[line["sample"]].append(float(line[known]))
    return {sample: sum(each) / len(each) for sample, each in sorted(values.items())}


def _summarise_task(task: str, lines: list[Line]) -> TaskSummary:
    correct = per_sample(lines, "correct")
    asked = all("nfe" in line for line in lines)
    values = {name: list(per_sample(lines, name).values()) for name, *_ in COSTS if asked}
    repeats = len({line["repeat"] for line in lines})
    return TaskSummary(
        task,
        len(correct),
        repeats,
        mean_of(list(correct.values())),
        {name: mean_of(each) for name, each in values.items()},
        ratio_of_means(values["e_token"], values["n_token"]) if asked else None,
        _seconds(lines) / repeats,
    )


def _seconds(lines: list[Line]) -> float:
    """Time until the last answer, summed over the sessions that were needed."""
    last: dict[int, float] = defaultdict(float)
    for line in lines:
        last[line["session"]] = max(last[line["session"]], line["elapsed"])
    return sum(last.values())


def summary_table(runs: Sequence[tuple[str, Sequence[TaskSummary]]], heading: str = "run") -> Table:
    """Runs side by side, grouped by task: what is to be compared stands together."""
    tasks = list(dict.fromkeys(summary.task for _, of_run in runs for summary in of_run))
    cached = any(summary.cached for _, of_run in runs for summary in of_run)
    columns = [column for column in COLUMNS if cached or column not in OF_THE_CACHE]
    rows = [
        _row(columns, name, summary)
        for task in tasks
        for name, of_run in runs
        for summary in of_run
        if summary.task == task
    ]
    return Table([heading, *columns[1:]], rows, labels=2)


def _row(columns: Sequence[str], name: str, summary: TaskSummary) -> list[str]:
    cost = {
        heading: shown(summary.costs.get(field), decimals) for field, heading, decimals in COSTS
    }
    cells = cost | {
        "run": name,
        "task": summary.task,
        "n": count(summary.samples, summary.repeats),
        "Acc %": shown(summary.accuracy, 1, scale=100),
        "E_ratio %": shown(summary.e_ratio, 1, scale=100),
        "seconds": f"{summary.seconds:.0f}" if summary.costs else NONE,
    }
    return [cells[column] for column in columns]


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
