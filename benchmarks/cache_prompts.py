"""Long prompts: the window cache against exact decoding where a model commits one token a step.

    python -m benchmarks.cache_prompts        # about 15 minutes, on a quiet machine

A random model of 105M parameters with LLaDA's vocabulary fills a canvas of 128 (as in the example
of LLaDA's own generate.py), one token a step, behind prompts of 64, 512 and 1,500 tokens, 1 and 8
rows at a time. Seconds of one row are few and vary, so they are medians of three runs in turn. A
random model shows what it costs, not what it writes.
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.cases import LLADA_VOCABULARY, Case
from benchmarks.measure import run_engine
from rho_eos import DecodeParams
from tests.reference.bridge import SPECIAL
from tests.reference.random_llada import random_llada

PROMPTS = (64, 512, 1500)
RUNS = {1: 3, 8: 1}  # rows at a time, and how often each kind is run
GOAL = (1500, 5.0)  # at this prompt, at least so many times faster


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--canvas", type=int, default=128)
    parser.add_argument("--prompts", type=int, nargs="*", default=PROMPTS)
    parser.add_argument("--rows", type=int, nargs="*", default=RUNS, choices=RUNS)
    parser.add_argument("--out", type=Path, default=Path("cache-prompts.json"))
    options = parser.parse_args()
    sizes = {"width": 384, "layers": 4, "heads": 6}
    model = random_llada(
        seed=1, vocabulary=LLADA_VOCABULARY, sharpness=5.0, eos_share=0.35, **sizes
    )
    random = np.random.default_rng(0)
    console, figures = Console(), []
    table = Table(title=f"105M parameters, {options.canvas} tokens, one a step")
    for heading in ("prompt", "rows", "exact s", "window s", "times faster", "times fewer"):
        table.add_column(heading, justify="right")
    for length in options.prompts:
        for rows in options.rows:
            prompts = [random.integers(4, LLADA_VOCABULARY, length).tolist() for _ in range(rows)]
            seconds: dict[str, list[float]] = {"none": [], "window": []}
            positions = {}
            for _ in range(RUNS[rows]):
                for cache, taken in seconds.items():
                    params = DecodeParams(
                        policy="fixed",
                        initial_length=options.canvas,
                        max_new_tokens=options.canvas,
                        steps=options.canvas,
                        early_stop=False,
                        cache=cache,
                    )
                    with console.status(f"prompt {length}, {rows} rows, cache {cache}"):
                        run = run_engine(Case(model, SPECIAL, prompts, params), rows)
                    taken.append(run.seconds)
                    positions[cache] = run.positions
            exact, window = median(seconds["none"]), median(seconds["window"])
            fewer = positions["none"] / positions["window"]
            figures.append(
                {
                    "prompt": length,
                    "rows": rows,
                    "exact": exact,
                    "window": window,
                    "times_faster": exact / window,
                    "times_fewer": fewer,
                }
            )
            table.add_row(
                *(f"{length:,}", str(rows), f"{exact:.1f}", f"{window:.1f}"),
                *(f"{exact / window:.2f}", f"{fewer:.2f}"),
            )
    console.print(table)
    options.out.write_text(json.dumps(figures, indent=2) + "\n")
    long = [each["times_faster"] for each in figures if each["prompt"] == GOAL[0]]
    if not long:
        return 0
    slowest = min(long)
    met = slowest >= GOAL[1]
    console.print(
        f"at {GOAL[0]:,}: {slowest:.1f} times, goal {GOAL[1]:g}: {'met' if met else 'NOT met'}"
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
