"""`make bench-cache`: what the window cache saves on the embedded model, and what it costs.

    python -m benchmarks.cache                     # 200 held-out problems a task, about two hours
    python -m benchmarks.cache --limit 20          # a first look
    python -m benchmarks.cache --parts seconds     # only the times: these want a quiet machine

Counts: {fixed 256, fixed 512, Asym, Sym, scout} × {exact, window, block-wise dual cache} at τ
0.9 and at τ 0.999, where the model commits 3 to 4 tokens a forward, as 8B models do: positions
computed and accuracy. The dual cache (tests/reference) has fixed lengths only; as published it
fills the whole canvas, and it is also run with our early stop. Blocks of 32. Seconds: exact and
window in turn, 8 rows at a time, on fewer problems. Counts do not depend on the machine or its
load; finished cells are kept in --out and not run again.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.problems import REPORTED, questions
from rho_eos import LLM, DecodeParams

POLICIES: dict[str, dict[str, Any]] = {
    "fixed 256": {"policy": "fixed", "initial_length": 256},
    "fixed 512": {"policy": "fixed", "initial_length": 512},
    "Asym from 64": {"preset": "asym"},
    "Sym from 64": {"preset": "sym"},
    "DAEDAL from 64": {"policy": "daedal"},
    "scout": {"policy": "scout"},
    "Asym from 64, no blocks": {"preset": "asym", "block_length": None},
    "fixed 256, guidance": {"policy": "fixed", "initial_length": 256, "cfg_scale": 0.5},
}
MODES = ("exact", "window", "dual", "dual, early stop")
THRESHOLDS = (0.999, 0.9)
#: τ, and by how much exact decoding must compute more positions: fixed lengths, and all others.
GOALS = {0.999: (3.0, 2.3), 0.9: (1.5, 1.5)}
ACCURACY = 0.005  # at most so much less
TIMED = 24  # problems a task for the seconds: few have a long end with few rows


def run_cell(
    llm: LLM, how: dict[str, Any], mode: str, limit: int, first: int = 0
) -> dict[str, Any]:
    """All problems of all tasks: how many are right, and what they cost."""
    asked = questions(limit, first)
    params = parameters(how, mode)
    started = time.perf_counter()
    outputs = llm.generate([question.prompt for question in asked], params)
    texts = [output.text for output in outputs]
    usage = [output.usage for output in outputs]
    cost = {
        "positions": sum(each.positions_evaluated for each in usage) / len(asked),
        "forwards": sum(each.nfe for each in usage) / len(asked),
        "refreshes": sum(each.refreshes for each in usage) / len(asked),
    }
    seconds = time.perf_counter() - started
    right = sum(question.right(text) for question, text in zip(asked, texts, strict=True))
    return {"accuracy": right / len(asked), **cost, "seconds": seconds, "problems": len(asked)}


def parameters(how: dict[str, Any], mode: str) -> DecodeParams:
    cache = {"exact": "none", "window": "window"}.get(mode, "dual")
    params = DecodeParams(max_new_tokens=512, cache=cache, **how)
    return params.replaced(early_stop=False) if mode == "dual" else params  # as published


def run_seconds(llm: LLM, how: dict[str, Any], limit: int, repeats: int) -> dict[str, float]:
    """Medians of runs in turn, so that whatever slows the machine down slows both down."""
    taken: dict[str, list[float]] = {"exact": [], "window": []}
    prompts = [question.prompt for question in questions(limit)]
    llm.generate(prompts[:8], parameters(how, "window"))
    for _ in range(repeats):
        for mode, seconds in taken.items():
            started = time.perf_counter()
            llm.generate(prompts, parameters(how, mode))
            seconds.append(time.perf_counter() - started)
    return {mode: median(seconds) for mode, seconds in taken.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=REPORTED, help="problems a task")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--out", type=Path, default=Path("bench-cache.json"))
    parser.add_argument("--thresholds", default=",".join(map(str, THRESHOLDS)))
    parser.add_argument("--parts", default="counts,seconds")
    parser.add_argument("--modes", nargs="*", default=MODES, choices=MODES, help="counts of these")
    parser.add_argument("--policies", nargs="*", default=POLICIES, choices=POLICIES)
    parser.add_argument("--repeats", type=int, default=3, help="timed runs of each kind")
    options = parser.parse_args()
    done: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    llm = LLM(options.model, max_rows=8, plugin="examples/dual_cache.py")
    console = Console()
    parts = options.parts.split(",")
    for threshold in (float(text) for text in options.thresholds.split(",")):
        for policy, own in ((name, POLICIES[name]) for name in options.policies):
            how = {"threshold": threshold, **own}
            fixed = own.get("policy") == "fixed" and "cfg_scale" not in own
            modes = MODES if fixed else MODES[:2]
            for mode in modes if "counts" in parts else ():
                if mode not in options.modes:
                    continue
                key = f"{options.model} {options.limit} {threshold} {policy} {mode}"
                if key not in done:
                    with console.status(key):
                        done[key] = run_cell(llm, how, mode, options.limit)
                    options.out.write_text(json.dumps(done, indent=2) + "\n")
            if "seconds" in parts:
                with console.status(f"seconds {threshold} {policy}"):
                    timed = run_seconds(llm, how, min(TIMED, options.limit), options.repeats)
                done[f"seconds {threshold} {policy}"] = timed
                options.out.write_text(json.dumps(done, indent=2) + "\n")
        show(done, f"{options.model} {options.limit}", threshold, console)
    return 0


def show(done: dict[str, Any], limit: str, threshold: float, console: Console) -> None:
    table = Table(title=f"τ {threshold}, {limit} problems a task", title_justify="left")
    headings = (
        *("policy", "cache", "right", "positions an answer", "times fewer", "goal"),
        "times faster, 8 rows",
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading in headings[:2] else "right")
    for policy, own in POLICIES.items():
        exact = done.get(f"{limit} {threshold} {policy} exact")
        timed = done.get(f"seconds {threshold} {policy}")
        faster = "" if timed is None else f"{timed['exact'] / timed['window']:.2f} x"
        if exact is None:
            table.add_row(policy, "window", *[""] * 4, faster)
            continue
        for mode in MODES:
            cell = done.get(f"{limit} {threshold} {policy} {mode}")
            if cell is None:
                continue
            fewer = exact["positions"] / cell["positions"]
            goal = ""
            if mode == "window":
                least = GOALS[threshold][0 if own.get("policy") == "fixed" else 1]
                good = fewer >= least and exact["accuracy"] - cell["accuracy"] <= ACCURACY
                goal = f"{least} x: {'met' if good else 'not met'}"
            table.add_row(
                policy,
                mode,
                f"{cell['accuracy']:.1%}",
                f"{cell['positions']:,.0f}",
                f"{fewer:.2f} x",
                goal,
                faster if mode == "window" else "",
            )
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
