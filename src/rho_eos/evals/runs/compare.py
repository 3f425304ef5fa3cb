"""Is a run better than another? Paired tests on the samples that both have answered.

p is exact: McNemar's test for accuracy, on the samples that only one of the two got right, and the
sign test for costs, on the samples that cost one of them less. 95% intervals are Newcombe's for
accuracy, and of the paired bootstrap for costs. Where samples were asked repeatedly their averages
are compared, and McNemar's test is the sign test on those. A dash stands where nothing differed,
since then there is nothing to test.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rho_eos.base.errors import UserError
from rho_eos.evals.runs import stats
from rho_eos.evals.runs.report import COSTS, NONE, per_sample, summarise, summary_table
from rho_eos.evals.runs.run_folder import SETTINGS, Line, read_samples
from rho_eos.evals.runs.table import Table

ACCURACY = "Acc"
COMPARED = ("NFE", "positions", "N_token")
COLUMNS = ("run", "against", "task", "metric", "n", "change", "95%", "better", "worse", "p")

Run = tuple[str, Sequence[Line]]  # its name, and its lines


@dataclass(frozen=True, slots=True)
class Change:
    """How one metric differs from the baseline's on the same samples."""

    metric: str
    samples: int
    change: float  # of accuracy: the difference; of a cost: a multiple of the baseline's
    interval: tuple[float, float] | None
    better: int  # samples: more often right, or cheaper
    worse: int

    @property
    def p(self) -> float:
        return stats.sign_test(self.better, self.worse)

    def cells(self) -> list[str]:
        """For the columns of a table from `metric` on."""
        form, scale, sign = ("{:.2f}", 1, "×") if self.metric in COSTS else ("{:+.1f}", 100, "")
        change = sign + form.format(scale * self.change)
        interval = NONE
        if self.interval is not None:
            interval = " to ".join(form.format(scale * x) for x in self.interval)
        p = "<0.001" if self.p < 0.001 else f"{self.p:.3f}"
        differed = self.better + self.worse > 0
        counts = f"{self.better}", f"{self.worse}", p if differed else NONE
        return [self.metric, f"{self.samples}", change, interval, *counts]


def compare(lines: Sequence[Line], baseline: Sequence[Line]) -> list[Change]:
    """Lines of one task each, metric by metric; nothing if they have no sample in common."""
    asked = {line["sample"]: (line["prompt"], line["reference"]) for line in baseline}
    for line in lines:  # that an id means the same in both is checked, not believed
        ours = (line["prompt"], line["reference"])
        if asked.get(line["sample"], ours) != ours:
            raise UserError(f"{line['sample']} is not the same question in both runs")
    shared = {line["sample"] for line in lines} & set(asked)
    sides = [[line for line in each if line["sample"] in shared] for each in (lines, baseline)]
    if not shared:
        return []
    metrics = {ACCURACY: "correct"}
    if all("score" in line for side in sides for line in side):
        metrics["score"] = "score"
    if all("nfe" in line for side in sides for line in side):
        cached = any(summary.cached for side in sides for summary in summarise(side))
        names = (*COMPARED, "exact") if cached else COMPARED
        metrics |= {name: COSTS[name][0] for name in names}
    return [
        _change(metric, *(list(per_sample(side, field).values()) for side in sides))
        for metric, field in metrics.items()
    ]


def _change(metric: str, ours: Sequence[float], theirs: Sequence[float]) -> Change:
    """How a metric differs on the same samples. More accuracy is better, and less of a cost."""
    gains = [a - b for a, b in zip(ours, theirs, strict=True)]
    more, less = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    if metric not in COSTS:
        gain = stats.share_change(ours, theirs)
        return Change(metric, len(gains), gain.mean, gain.interval, better=more, worse=less)
    ratio, interval = stats.ratio_of_means(ours, theirs).mean, stats.ratio_interval(ours, theirs)
    return Change(metric, len(gains), ratio, interval, better=less, worse=more)


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Runs by name; a folder that only holds runs, such as a sweep's, stands for all of them."""
    found = [run for folder in folders for run in runs_in(folder)]
    names = [run.absolute().name for run in found]
    if len(set(names)) < len(names):
        names = [str(run) for run in found]
    return [(name, read_samples(run)) for name, run in zip(names, found, strict=True)]


def runs_in(folder: Path) -> list[Path]:
    """The folder itself if it is a run, else the runs that lie in it."""
    if (folder / SETTINGS).exists():
        return [folder]
    inside = sorted(path.parent for path in folder.glob(f"*/{SETTINGS}"))
    if not inside:
        raise UserError(f"{folder} is no run: it has no {SETTINGS}")
    return inside


def runs_table(runs: Sequence[Run]) -> Table:
    return summary_table([(name, summarise(lines)) for name, lines in runs])


def tests_table(runs: Sequence[Run], against: str | None = None) -> Table:
    """Every run against one of them, by default the first, task by task and metric by metric."""
    names = [name for name, _ in runs]
    if against is not None and against not in names:
        raise UserError.of("against", against, f"one of {', '.join(names)}")
    baseline = runs[names.index(against) if against else 0]
    others = [run for run in runs if run is not baseline]
    tasks = dict.fromkeys(line["task"] for line in baseline[1])
    rows = [row for task in tasks for row in tests_of(task, baseline, others)]
    if not rows:
        which = baseline[0] if against else f"the first, {baseline[0]}"
        raise UserError(f"no run has a sample in common with {which}")
    return Table(COLUMNS, rows, labels=4)


def tests_of(task: str, baseline: Run, runs: Sequence[Run]) -> list[list[str]]:
    """Rows of the table: each run against the baseline on one task."""

    def of_task(lines: Sequence[Line]) -> list[Line]:
        return [line for line in lines if line["task"] == task]

    return [
        [name, baseline[0], task, *change.cells()]
        for name, lines in runs
        for change in compare(of_task(lines), of_task(baseline[1]))
    ]
