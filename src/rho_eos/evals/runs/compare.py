"""Is a run better than another? Paired tests on the samples that both have answered.

p is exact: McNemar's test for accuracy, on the samples that only one of the two got right, and the
sign test for costs, on the samples that cost one of them less. The change of a mean comes with its
95% interval from the paired bootstrap. Where samples were asked repeatedly their averages are
compared, and McNemar's test is the sign test on those.
"""

from collections.abc import Iterator, Sequence
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

COSTS = (("nfe", "NFE"), ("positions_evaluated", "positions"), ("n_token", "N_token"))
EXACT = ("positions_exact", "exact")  # positions, if there were no cache
COLUMNS = ("run", "against", "task", "metric", "n", "change", "95%", "better", "worse", "p")


@dataclass(frozen=True, slots=True)
class Run:
    name: str
    lines: Sequence[Line]

    def of(self, task: str) -> list[Line]:
        return [line for line in self.lines if line["task"] == task]

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(line["task"] for line in self.lines))


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
    asked = all("nfe" in line for line in (*ours, *theirs))
    cached = any(summary.cached for each in (ours, theirs) for summary in summarise(each))
    compared = (*COSTS, EXACT) if cached else COSTS
    costs = [_cost_change(ours, theirs, *cost) for cost in compared if asked]
    return [_accuracy_change(ours, theirs), *costs]


def _shared(lines: Sequence[Line], baseline: Sequence[Line]) -> set[str]:
    """Samples of both; that an id means the same in both is checked, not believed."""
    theirs = {line["sample"]: (line["prompt"], line["reference"]) for line in baseline}
    for line in lines:
        asked = (line["prompt"], line["reference"])
        if theirs.get(line["sample"], asked) != asked:
            raise UserError(f"{line['sample']} is not the same question in both runs")
    return {line["sample"] for line in lines} & set(theirs)


def _accuracy_change(ours: Sequence[Line], theirs: Sequence[Line]) -> Change:
    right, base = _paired(ours, theirs, "correct")
    gains = [a - b for a, b in zip(right, base, strict=True)]
    change, interval = mean_of(gains).mean, mean_interval(gains)
    better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    return Change("Acc", len(gains), change, interval, better, worse)


def _cost_change(ours: Sequence[Line], theirs: Sequence[Line], field: str, metric: str) -> Change:
    cost, base = _paired(ours, theirs, field)
    pairs = list(zip(cost, base, strict=True))
    ratio, interval = ratio_of_means(cost, base).mean, ratio_interval(cost, base)
    cheaper, dearer = sum(a < b for a, b in pairs), sum(a > b for a, b in pairs)
    return Change(metric, len(pairs), ratio, interval, cheaper, dearer)


def _paired(
    ours: Sequence[Line], theirs: Sequence[Line], field: str
) -> tuple[list[float], list[float]]:
    """The values of both, sample by sample."""
    our, their = per_sample(ours, field), per_sample(theirs, field)
    return list(our.values()), [their[sample] for sample in our]


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
    rows = list(_rows(runs))
    if not rows:
        raise UserError(f"no run has a sample in common with the first, {runs[0].name}")
    return Table(COLUMNS, rows, labels=4)


def _rows(runs: Sequence[Run]) -> Iterator[list[str]]:
    baseline = runs[0]
    for task in baseline.tasks:
        for run in runs[1:]:
            for change in compare(run.of(task), baseline.of(task)):
                yield [run.name, baseline.name, task, *_cells(change)]


def _cells(change: Change) -> list[str]:
    def shown(value: float) -> str:
        return f"{100 * value:+.1f}" if change.metric == "Acc" else f"{value:.2f}"

    low, high = change.interval
    sign = "" if change.metric == "Acc" else "×"
    p = "<0.001" if change.p < 0.001 else f"{change.p:.3f}"
    return [
        change.metric,
        f"{change.samples}",
        f"{sign}{shown(change.change)}",
        f"{shown(low)} to {shown(high)}",
        f"{change.better}",
        f"{change.worse}",
        p,
    ]
