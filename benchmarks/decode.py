"""`make bench`: how much faster and smaller than the naive decoder, for the same tokens.

Every figure is a ratio of two measurements of this run, on this machine: runs of both decoders
alternate, each in a process of its own, and medians are compared. `bench.json` keeps all of it.
"""

import argparse
import json
import platform
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
TITLES = {
    "embedded": "(a) the embedded model",
    "large_vocabulary": "(b) a random LLaDA-shaped model with a large vocabulary",
}
SAMPLED = "a sampled step, times a greedy one"
#: What must hold: (case, figure, at least or at most, bound).
REQUIRED = [
    ("embedded", "times faster", "at least", 4.0),
    ("large_vocabulary", "times faster", "at least", 3.0),
    ("large_vocabulary", "share of the reference's peak memory", "at most", 1 / 3),
    ("large_vocabulary", "share of time outside the model's forward", "at most", 0.10),
    ("sampling", SAMPLED, "at most", 1.3),
]
BASELINES = {
    "embedded": ("reference", "reference, stopping early"),
    "large_vocabulary": ("reference",),
}
ONCE = "reference, stopping early"  # for information only: one run will do


def run(case: str, decoder: str, quick: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.worker", case, decoder]
    done = subprocess.run(
        command + ["--quick"] * quick, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def compare(case: str, repeats: int, quick: bool, console: Console) -> dict[str, Any]:
    """Medians of alternating runs, and how many prompts got tokens unlike the reference's."""
    decoders = ("engine", *BASELINES[case])
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in decoders}
    for turn in range(repeats):
        for name in decoders:
            if name == ONCE and turn > 0:
                continue
            with console.status(f"{case}: {name}, run {turn + 1} of {repeats}"):
                runs[name].append(run(case, name, quick))
    figures: dict[str, Any] = {
        name: {
            field: median(one[field] for one in several)
            for field in ("seconds", "positions", "forward_seconds", "peak_megabytes")
        }
        for name, several in runs.items()
    }
    ours, naive = figures["engine"], figures["reference"]
    figures["times faster"] = naive["seconds"] / ours["seconds"]
    figures["share of the reference's peak memory"] = (
        ours["peak_megabytes"] / naive["peak_megabytes"] if naive["peak_megabytes"] else 1.0
    )
    figures["share of time outside the model's forward"] = (
        1 - ours["forward_seconds"] / ours["seconds"]
    )
    expected = runs["reference"][0]["tokens"]
    figures["prompts"] = len(expected)
    figures["parameters"] = runs["engine"][0]["parameters"]
    figures["vocabulary"] = runs["engine"][0]["vocabulary"]
    figures["different answers"] = max(
        sum(a != b for a, b in zip(one["tokens"], expected, strict=True))
        for several in runs.values()
        for one in several
    )
    return figures


def show_case(case: str, figures: dict[str, Any], console: Console) -> None:
    table = Table(title=TITLES[case], title_justify="left")
    table.add_column("decoder")
    for heading in ("seconds", "times faster", "positions evaluated", "peak memory, MB"):
        table.add_column(heading, justify="right")
    for name in ("engine", *BASELINES[case]):
        line = figures[name]
        table.add_row(
            name,
            f"{line['seconds']:.2f}",
            f"{line['seconds'] / figures['engine']['seconds']:.2f} x" if name != "engine" else "",
            f"{line['positions']:,.0f}",
            f"{line['peak_megabytes']:.0f}",
        )
    console.print(table)
    different, prompts = figures["different answers"], figures["prompts"]
    same = "the same tokens" if not different else f"[red]{different} answers differ[/red]"
    outside = figures["share of time outside the model's forward"]
    console.print(
        f"{figures['parameters'] / 1e6:.1f}M parameters, vocabulary {figures['vocabulary']:,}; "
        f"{prompts} prompts, 8 rows per forward: {same}. The engine spent {outside:.1%} of its "
        "time outside the model's forward. Memory is counted above the loaded model.\n"
    )


def show_required(report: dict[str, Any], console: Console) -> None:
    table = Table(title="Required", title_justify="left")
    for heading in ("case", "figure", "required", "measured", ""):
        table.add_column(heading)
    for case, figure, sense, bound in REQUIRED:
        value = report[case][figure]
        met = value >= bound if sense == "at least" else value <= bound
        table.add_row(
            TITLES.get(case, "(b)")[:3],
            figure,
            f"{sense} {bound:.2f}",
            f"{value:.2f}",
            "[green]met[/green]" if met else "[red]not met[/red]",
        )
    console.print(table)


def show_scaling(report: dict[str, Any], console: Console) -> None:
    batches = Table(title="All prompts of (a), by rows per forward", title_justify="left")
    for heading in ("rows", "seconds", "positions evaluated", "answers changed"):
        batches.add_column(heading, justify="right")
    for line in report["by batch size"]:
        batches.add_row(
            str(line["batch_size"]),
            f"{line['seconds']:.2f}",
            f"{line['positions']:,}",
            str(line["answers_changed"]),
        )
    console.print(batches)
    sampling = Table(title="One step of 8 rows of (b), 64 MASKs each", title_justify="left")
    for heading in ("tokens", "ms", "times a greedy step"):
        sampling.add_column(heading, justify="right")
    for line in report["by sampling"]:
        milliseconds = f"{line['seconds_per_step'] * 1e3:.1f}"
        sampling.add_row(line["way"], milliseconds, f"{line['times a greedy step']:.2f} x")
    console.print(sampling)
    lengths = Table(title="One forward of 8 rows of (a), by canvas length", title_justify="left")
    for heading in ("L", "engine, ms", "reference, ms", "times faster"):
        lengths.add_column(heading, justify="right")
    for line in report["by length"]:
        ours, naive = line["seconds_per_forward"], line["reference_seconds_per_forward"]
        lengths.add_row(
            str(line["length"]), f"{ours * 1e3:.1f}", f"{naive * 1e3:.1f}", f"{naive / ours:.2f} x"
        )
    console.print(lengths)


def scaling(quick: bool, picture: Path, console: Console) -> dict[str, Any]:
    from benchmarks.cases import embedded, large_vocabulary
    from benchmarks.scaling import by_batch_size, by_length, by_sampling, draw

    case = embedded(quick)
    with console.status("a sampled step and a greedy one"):
        drawn = by_sampling(large_vocabulary(quick), 16 if quick else 64, 1 if quick else 5)
    with console.status("time by batch size and by length"):
        batches = by_batch_size(case, [1, 2, 4] if quick else [1, 2, 4, 8, 16, 32, 64])
        lengths = by_length(case, [64, 128] if quick else [64, 128, 256, 512, 1024])
    draw(batches, lengths, picture)
    return {
        "by batch size": batches,
        "by length": lengths,
        "by sampling": drawn,
        "sampling": {SAMPLED: drawn[1]["times a greedy step"]},
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decode", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all?")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each decoder")
    parser.add_argument("--output", type=Path, default=ROOT / "bench.json")
    parser.add_argument("--picture", type=Path, default=ROOT / "benchmarks" / "scaling.png")
    options = parser.parse_args(arguments)
    console = Console()
    report: dict[str, Any] = {"machine": platform.platform(), "quick": options.quick}
    repeats = 1 if options.quick else options.repeats
    for case in TITLES:
        report[case] = compare(case, repeats, options.quick, console)
        show_case(case, report[case], console)
    report |= scaling(options.quick, options.picture, console)
    show_scaling(report, console)
    if options.quick:
        console.print("Sizes are tiny: these figures mean nothing.")
    else:
        show_required(report, console)
    options.output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    console.print(f"All figures: {options.output}; picture: {options.picture}")
    return 1 if any(report[case]["different answers"] for case in TITLES) else 0


if __name__ == "__main__":
    sys.exit(main())
