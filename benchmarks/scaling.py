"""How time grows: with the rows per forward, and with the length of the canvas."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.cases import BATCH, Case
from benchmarks.measure import run_engine, run_reference
from rho_eos.decoding.params import DecodeParams

FORWARDS = 4  # per measured length


def by_batch_size(case: Case, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """All prompts, once per batch size; the tokens must be those of batch size 1."""
    lines: list[dict[str, Any]] = []
    alone: list[list[int]] | None = None
    for rows in sizes:
        run = run_engine(case, rows)
        alone = alone or run.tokens
        changed = sum(a != b for a, b in zip(run.tokens, alone, strict=True))
        lines.append(
            {
                "batch_size": rows,
                "seconds": run.seconds,
                "positions": run.positions,
                "answers_changed": changed,
            }
        )
    return lines


def by_length(case: Case, lengths: Sequence[int]) -> list[dict[str, Any]]:
    """Seconds per forward of a full batch whose canvases all have length L."""
    lines: list[dict[str, Any]] = []
    for length in lengths:
        params = DecodeParams(
            policy="fixed",
            initial_length=length,
            steps=FORWARDS,
            block_length=None,
            early_stop=False,
        )
        some = dataclasses.replace(case, prompts=case.prompts[:BATCH], params=params)
        ours, naive = run_engine(some), run_reference(some)
        lines.append(
            {
                "length": length,
                "seconds_per_forward": ours.seconds / FORWARDS,
                "reference_seconds_per_forward": naive.seconds / FORWARDS,
            }
        )
    return lines


WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "temperature 1": {"temperature": 1.0},
    "temperature 1, top_k 50": {"temperature": 1.0, "top_k": 50},
    "temperature 1, top_p 0.9": {"temperature": 1.0, "top_p": 0.9},
}


def by_sampling(case: Case, length: int, repeats: int) -> list[dict[str, Any]]:
    """Seconds per step of a batch, greedy and sampled; medians of alternating runs."""
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    fixed = {"policy": "fixed", "initial_length": length, "steps": FORWARDS, "early_stop": False}
    for _ in range(repeats):
        for way, drawn in WAYS.items():
            params = DecodeParams(block_length=None, **fixed, **drawn)
            some = dataclasses.replace(case, prompts=case.prompts[:BATCH], params=params)
            seconds[way].append(run_engine(some).seconds / FORWARDS)
    greedy = median(seconds["greedy"])
    return [
        {
            "way": way,
            "seconds_per_step": median(times),
            "times a greedy step": median(times) / greedy,
        }
        for way, times in seconds.items()
    ]


def draw(batches: list[dict[str, Any]], lengths: list[dict[str, Any]], path: Path) -> None:
    """Both tables as one picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    sizes = [line["batch_size"] for line in batches]
    left.plot(sizes, [line["seconds"] for line in batches], "o-", label="engine")
    left.set(
        title="All prompts, by rows per forward",
        xlabel="rows per forward",
        ylabel="seconds",
        xscale="log",
        xticks=sizes,
        xticklabels=sizes,
        ylim=(0, None),
    )
    canvases = [line["length"] for line in lengths]
    for key, label, style in (
        ("seconds_per_forward", "engine", "o-"),
        ("reference_seconds_per_forward", "naive reference", "s--"),
    ):
        right.plot(canvases, [line[key] for line in lengths], style, label=label)
    right.set(
        title=f"One forward of {BATCH} rows, by canvas length",
        xlabel="L",
        ylabel="seconds",
        xscale="log",
        yscale="log",
        xticks=canvases,
        xticklabels=canvases,
    )
    for axes in (left, right):
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
