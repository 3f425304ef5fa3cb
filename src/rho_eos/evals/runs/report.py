"""What a run showed: the metrics of docs/method.md §7, each a mean over samples.

Accuracy comes with its 95% interval, all else with its standard error. Repeats of a sample are
averaged first: they are not further samples, and must not make an error smaller than it is. E_ratio
is the ratio of the averages.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rho_eos.base.errors import shown as shown_value
from rho_eos.evals.runs.run_folder import Line, write_json
from rho_eos.evals.runs.stats import Estimate, mean_of, pass_at, ratio_of_means, share_of
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
    pass_at: dict[int, Estimate] = field(default_factory=dict)  # k -> pass@k, of repeats
    score: Estimate | None = None  # where the task gives one beside right and wrong

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
    costs = {name: mean_of(each) for name, each in values.items() if name != "correct"}
    repeats = len({line["repeat"] for line in lines})
    scored = all("score" in line for line in lines)
    score = share_of(list(per_sample(lines, "score").values())) if scored else None
    e_ratio = ratio_of_means(values["e_token"], values["n_token"]) if asked else None
    last: dict[int, float] = {}  # when the last answer came, in each session that was needed
    for line in lines:
        last[line["session"]] = max(last.get(line["session"], 0.0), line["elapsed"])
    seconds = sum(last.values()) / repeats
    accuracy, passed = share_of(values["correct"]), _pass_at(lines)
    samples = len(values["correct"])
    return TaskSummary(task, samples, repeats, accuracy, costs, e_ratio, seconds, passed, score)


def _pass_at(lines: Iterable[Line]) -> dict[int, Estimate]:
    """pass@k for 2, 4, 8, … and all repeats, as far as every sample was asked so often."""
    answers: dict[str, list[bool]] = defaultdict(list)
    for line in lines:
        answers[line["sample"]].append(line["correct"])
    most = min(map(len, answers.values()))
    ks = sorted({2**power for power in range(1, most.bit_length()) if 2**power <= most} | {most})
    return {
        k: share_of([pass_at(sum(each), len(each), k) for each in answers.values()])
        for k in ks
        if k > 1
    }


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
    ks = sorted({k for _, summary in rows for k in summary.pass_at})
    scores = ["score %"] if any(summary.score for _, summary in rows) else []
    columns = [heading, "task", "n", "Acc %", *scores, *(f"pass@{k} %" for k in ks)]
    columns += [*costs[:2], "E_ratio %", *costs[2:], "seconds"]
    return Table(columns, [_cells(*row, costs, bool(scores), ks) for row in rows], labels=2)


def _cells(
    name: str, summary: TaskSummary, columns: Sequence[str], scores: bool, ks: Sequence[int]
) -> list[str]:
    costs = [shown(summary.costs.get(COSTS[each][0]), COSTS[each][1]) for each in columns]
    e_ratio = shown(summary.e_ratio, 1, scale=100)
    shares = [summary.accuracy, *([summary.score] if scores else []), *map(summary.pass_at.get, ks)]
    return [
        name,
        summary.task,
        count(summary.samples, summary.repeats),
        *(shown(each, 1, scale=100) for each in shares),
        *(*costs[:2], e_ratio, *costs[2:]),
        f"{summary.seconds:.0f}" if summary.costs else NONE,
    ]


def count(samples: int, repeats: int) -> str:
    return f"{samples}×{repeats}" if repeats > 1 else f"{samples}"


def shown(estimate: Estimate | None, decimals: int, scale: float = 1) -> str:
    """A mean for a table: with its interval if it is a share, else with its standard error, unless
    nothing varied."""
    if estimate is None:
        return NONE
    mean = f"{estimate.mean * scale:.{decimals}f}"
    if estimate.interval is not None:
        low, high = (f"{bound * scale:.{decimals}f}" for bound in estimate.interval)
        return f"{mean} [{low}, {high}]"
    return f"{mean} ± {estimate.error * scale:.{decimals}f}" if estimate.error else mean


def write_summary(folder: Path, lines: Iterable[Line]) -> list[TaskSummary]:
    """summary.json and summary.{md,csv,tex} beside the samples."""
    summaries = summarise(lines)
    write_json(folder / "summary.json", [asdict(summary) for summary in summaries])
    summary_table([(folder.name, summaries)]).write(folder / "summary")
    return summaries


def wrong_references(lines: Iterable[Line]) -> Iterator[str]:
    """Of reference answers that were graded: what is wrong with a task that refuses its own."""
    by_task: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_task[line["task"]].append(line)
    for task, of_task in by_task.items():
        wrong = [line for line in of_task if not line["correct"]]
        if not wrong:
            continue
        first = wrong[0]
        found = "nothing" if first["extracted"] is None else shown_value(first["extracted"])
        yield (
            f"{task} grades {len(wrong)} of {len(of_task)} of its own reference answers as wrong, "
            f"so `gold` and `grade` do not go together. {first['sample']}: in "
            f"{shown_value(first['text'])} it finds {found} as the answer; {first['detail']}"
        )
