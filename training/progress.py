"""What a run of training prints, remembers and draws of its progress."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from rho_problems import TASKS
from training.batches import Batch
from training.rows import NEAR, Kind

Sums = dict[str, tuple[float, int]]  # what was added up, and how many
Record = dict[str, Any]


def count_right(batch: Batch, right: torch.Tensor, is_number: torch.Tensor) -> Sums:
    """How much of what matters was said right, by kind of row and task.

    `right` is about the positions that the batch asks for. Over all of them, words that are always
    the same would hide the rest.
    """
    asked = batch.targets >= 0
    row = asked.nonzero()[:, 0]
    kind, task = batch.kind[row], batch.task[row]
    targets, weights = batch.targets[asked], batch.weights[asked]
    numbers = is_number[targets] & (weights >= NEAR["content"])
    lookups, starts = (weights == NEAR[name] for name in ("lookup", "start"))
    sums: Sums = {}
    for suffix, matters in (("", numbers | lookups), (" starts", starts)):
        for each in Kind:
            for index, name in enumerate(TASKS):
                chosen = right[matters & (kind == each) & (task == index)]
                if len(chosen):
                    key = f"{each.name.lower()}{suffix}/{name}"
                    sums[key] = (float(chosen.sum()), len(chosen))
    return sums


class Window:
    """Adds up what the steps since the last line gave."""

    def __init__(self, tokens: int) -> None:
        self.sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
        self.since, self.tokens = time.monotonic(), tokens

    def add(self, sums: Sums) -> None:
        for name, (total, count) in sums.items():
            self.sums[name][0] += total
            self.sums[name][1] += count

    def means(self) -> dict[str, float]:
        return {name: total / count for name, (total, count) in self.sums.items()}

    def tokens_per_second(self, tokens: int) -> float:
        return (tokens - self.tokens) / (time.monotonic() - self.since)


def next_token_shares(means: dict[str, float]) -> dict[str, float]:
    """By task, the share said right in next-token rows."""
    first = f"{Kind.NEXT_TOKEN.name.lower()}/"
    return {n.removeprefix(first): mean for n, mean in means.items() if n.startswith(first)}


def as_line(means: dict[str, float]) -> str:
    """`loss 0.1  canvas 91% 92% 93% 94%  …`: per kind of row, the tasks in their order."""
    grouped: dict[str, list[str]] = {}
    for name in sorted(means, key=_order):
        kind, _, task = name.partition("/")
        share = f"{means[name]:.0%}" if task else f"{means[name]:.3f}"
        grouped.setdefault(kind, []).append(share)
    return "  ".join(f"{kind} {' '.join(shares)}" for kind, shares in grouped.items())


def _order(name: str) -> tuple[bool, str, int]:
    kind, _, task = name.partition("/")
    return bool(task), kind, list(TASKS).index(task) if task else 0


def draw_curve(history: list[Record], path: Path) -> None:
    """The loss, and the numbers said right in canvas rows beside the problems solved."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    logged = [record for record in history if "loss" in record]
    left.plot([r["minutes"] for r in logged], [r["loss"] for r in logged], color="black")
    left.set(xlabel="minutes", ylabel="loss", yscale="log")
    for color, name in enumerate(TASKS):
        canvas = [(r["minutes"], r[key]) for r in logged if (key := f"canvas/{name}") in r]
        solved = [(r["minutes"], r["solved"][name]) for r in history if "solved" in r]
        right.plot([at for at, _ in canvas], [y for _, y in canvas], f"C{color}", label=name)
        right.plot([at for at, _ in solved], [y for _, y in solved], f"C{color}o")
    right.set(xlabel="minutes", ylabel="numbers right (lines), solved (dots)", ylim=(0, 1.02))
    right.legend()
    figure.savefig(path, dpi=150)
