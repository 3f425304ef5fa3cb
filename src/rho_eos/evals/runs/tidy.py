"""Runs as one tidy table: a row for each run and task, parameters as columns, numbers as numbers.

It is for pandas, R and the like; tables for people are in `report.py`.
"""

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rho_eos.evals.runs.report import TaskSummary, summarise
from rho_eos.evals.runs.run_folder import read_samples, read_settings
from rho_eos.evals.runs.stats import Estimate

TIDY = "tidy.csv"


def write_tidy(path: Path, folders: Iterable[Path]) -> None:
    rows = [row for folder in folders for row in tidy_rows(folder)]
    columns = dict.fromkeys(name for row in rows for name in row)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(columns), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def tidy_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of one run. What does not exist, such as costs without a model, is left out."""
    settings = read_settings(folder)["settings"]
    model = settings["model"] or {}
    about = {"model": model.get("model"), "weights": model.get("weights")}
    if adapters := model.get("adapters"):
        about["adapters"] = "; ".join(f"{each['adapter']} {each['weights']}" for each in adapters)
    params = {
        name: json.dumps(value) if isinstance(value, list | dict | bool) else value
        for name, value in settings["params"].items()
    }
    return [
        {"run": folder.absolute().name, "task": each.task, **about, **params, **_numbers(each)}
        for each in summarise(read_samples(folder))
    ]


def _numbers(summary: TaskSummary) -> dict[str, Any]:
    shares = {"accuracy": summary.accuracy, "score": summary.score}
    shares |= {f"pass_at_{k}": each for k, each in summary.pass_at.items()}
    means = {**shares, "e_ratio": summary.e_ratio, **summary.costs}
    found: dict[str, Any] = {"samples": summary.samples, "repeats": summary.repeats}
    for name, estimate in means.items():
        if estimate is not None:
            found |= _columns(name, estimate)
    return found | ({"seconds": summary.seconds} if summary.costs else {})


def _columns(name: str, estimate: Estimate) -> dict[str, Any]:
    """A mean beside the ends of its interval, or its standard error."""
    if estimate.interval is None:
        return {name: estimate.mean, f"{name}_error": estimate.error}
    low, high = estimate.interval
    return {name: estimate.mean, f"{name}_low": low, f"{name}_high": high}
