"""Is a run better than another? Paired tests on the samples that both have answered.

p is exact: McNemar's test for accuracy, on the samples that only one of the two got right, and the
sign test for costs, on the samples that cost one of them less. The change of a mean comes with its
95% interval from the paired bootstrap. Where samples were asked repeatedly their averages are
compared, and McNemar's test is the sign test on those.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rho_eos.base.errors import UserError
from rho_eos.evals.runs.report import per_sample, summarise, summary_table
from rho_eos.evals.runs.run_folder import SETTINGS, Line, read_samples
from rho_eos.evals.runs.stats import (
    mean_interval,
    mean_of,
    ratio_interval,
    ratio_of_means,
    sign_test,
)
from rho_eos.evals.runs.table import Table

ACCURACY = "Acc"
COSTS = (("nfe", "NFE"), ("positions_evaluated", "positions"), ("n_token", "N_token"))
EXACT = ("positions_exact", "exact")  # positions, if there were no cache
COLUMNS = ("run", "against", "task", "metric", "n", "change", "95%", "better", "worse", "p")


@dataclass(frozen=True, slots=True)
class Run:
    name: str
    lines: Sequence[Line]

    def of(self, task: str) -> list[Line]:
        return [line for line in self.lines if line["task"] == task]


@dataclass(frozen=True, slots=True)
class Change:
    """How one metric differs from the baseline's on the same samples."""

    metric: str
    samples: int
    change: float  # of accuracy: the difference; of a cost: a multiple of the baseline's
    interval: tuple[float, float]
    better: int  # samples: more often right, or cheaper
    worse: int

    @property
    def p(self) -> float:
        return sign_test(self.better, self.worse)


def compare(lines: Sequence[Line], baseline: Sequence[Line]) -> list[Change]:
    """Lines of one task each, metric by metric; nothing if they have no sample in common."""
    samples = _shared(lines, baseline)
    if not samples:
        return []
    ours = [line for line in lines if line["sample"] in samples]
    theirs = [line for line in baseline if line["sample"] in samples]
    metrics = [("correct", ACCURACY)]
    if all("nfe" in line for line in (*ours, *theirs)):
        metrics += COSTS
        if any(summary.cached for each in (ours, theirs) for summary in summarise(each)):
            metrics.append(EXACT)
    return [_change(metric, per_sample(ours, f), per_sample(theirs, f)) for f, metric in metrics]


def _shared(lines: Sequence[Line], baseline: Sequence[Line]) -> set[str]:
    """Samples of both; that an id means the same in both is checked, not believed."""
    theirs = {line["sample"]: (line["prompt"], line["reference"]) for line in baseline}
    for line in lines:
        asked = (line["prompt"], line["reference"])
        if theirs.get(line["sample"], asked) != asked:
            raise UserError(f"{line['sample']} is not the same question in both runs")
    return {line["sample"] for line in lines} & set(theirs)


def _change(metric: str, ours: Mapping[str, float], theirs: Mapping[str, float]) -> Change:
    """Both have a value for each sample. More is better of accuracy, less of a cost."""
    pairs = [(value, theirs[sample]) for sample, value in ours.items()]
    more, less = sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)
    if metric == ACCURACY:
        gains = [a - b for a, b in pairs]
        mean, interval = mean_of(gains).mean, mean_interval(gains)
        return Change(metric, len(pairs), mean, interval, better=more, worse=less)
    costs, base = [a for a, _ in pairs], [b for _, b in pairs]
    ratio, interval = ratio_of_means(costs, base).mean, ratio_interval(costs, base)
    return Change(metric, len(pairs), ratio, interval, better=less, worse=more)


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Runs by name; a folder that only holds runs, such as a sweep's, stands for all of them."""
    found = [run for folder in folders for run in runs_in(folder)]
    names = [run.absolute().name for run in found]
    unique = len(set(names)) == len(names)
    return [
        Run(name if unique else str(folder), read_samples(folder))
        for name, folder in zip(names, found, strict=True)
    ]


def runs_in(folder: Path) -> list[Path]:
    """The folder itself if it is a run, else the runs that lie in it."""
    if (folder / SETTINGS).exists():
        return [folder]
    inside = sorted(path.parent for path in folder.glob(f"*/{SETTINGS}"))
    if not inside:
        raise UserError(f"{folder} is no run: it has no {SETTINGS}")
    return inside


def runs_table(runs: Sequence[Run]) -> Table:
    return summary_table([(run.name, summarise(run.lines)) for run in runs])


def tests_table(runs: Sequence[Run]) -> Table:
    """Every run against the first, task by task and metric by metric."""
    baseline, *others = runs
    tasks = dict.fromkeys(line["task"] for line in baseline.lines)
    rows = [row for task in tasks for row in tests_of(task, baseline, others)]
    if not rows:
        raise UserError(f"no run has a sample in common with the first, {baseline.name}")
    return Table(COLUMNS, rows, labels=4)


def tests_of(task: str, baseline: Run, runs: Sequence[Run]) -> list[list[str]]:
    """Rows of the table: each run against the baseline on one task."""
    theirs = baseline.of(task)
    return [
        [run.name, baseline.name, task, *_cells(change)]
        for run in runs
        for change in compare(run.of(task), theirs)
    ]


def _cells(change: Change) -> list[str]:
    form = "{:+.1f}" if change.metric == ACCURACY else "{:.2f}"
    scale, sign = (100, "") if change.metric == ACCURACY else (1, "×")
    value, low, high = (form.format(scale * x) for x in (change.change, *change.interval))
    return [
        change.metric,
        f"{change.samples}",
        f"{sign}{value}",
        f"{low} to {high}",
        f"{change.better}",
        f"{change.worse}",
        "<0.001" if change.p < 0.001 else f"{change.p:.3f}",
    ]
