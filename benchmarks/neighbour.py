"""Decoding one row at a time beside a busy process: does sharing each operation among cores pay?

    python -m benchmarks.neighbour          # about five minutes, on an otherwise quiet machine

Three models (the embedded one, 105M and 400M parameters), each alone and beside a process that
keeps one core busy, with one core, with all cores in every operation, and as the engine chooses.
Seconds are medians of alternating runs; the choice is compared with the better of the two.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parent.parent
WAYS = ("one core", "all cores", "as chosen")
MODELS = ("embedded", "105M", "400M")
SPIN = "while True: pass"


def work(model: str, way: str) -> dict[str, Any]:
    """In a process of its own: decode some prompts, one row at a time."""
    import time

    import torch

    from benchmarks.cases import Case, embedded
    from benchmarks.measure import run_engine
    from rho_eos.engine import cores
    from tests.reference.bridge import SPECIAL
    from tests.reference.random_llada import random_llada

    cores.LONG_OPERATION = {"one core": float("inf"), "all cores": 0.0}.get(
        way, cores.LONG_OPERATION
    )
    if model == "embedded":
        case = embedded()
        case = Case(case.model, case.special, case.prompts[:12], case.params)
    else:
        width, layers, vocabulary = (384, 4, 126_464) if model == "105M" else (1536, 12, 16_384)
        sizes = {"vocabulary": vocabulary, "width": width, "layers": layers, "heads": 6}
        params = {"policy": "fixed", "initial_length": 32, "steps": 4, "early_stop": False}
        from rho_eos.decoding.params import DecodeParams

        drawn = random_llada(seed=1, sharpness=5.0, eos_share=0.35, **sizes)
        prompts = [list(range(4, 4 + n)) for n in (16, 64)]
        case = Case(drawn, SPECIAL, prompts, DecodeParams(**params))
    run_engine(Case(case.model, case.special, case.prompts[:1], case.params), rows=1)
    started = time.perf_counter()
    done = run_engine(case, rows=1)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "tokens": done.tokens, "cores": torch.get_num_threads()}


@contextmanager
def busy_neighbour(wanted: bool) -> Iterator[None]:
    """A process that computes for as long as this one measures."""
    if not wanted:
        yield
        return
    neighbour = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        yield
    finally:
        neighbour.kill()
        neighbour.wait()


def measure(model: str, way: str, busy: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.neighbour", "--work", model, way]
    with busy_neighbour(busy):
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--models", default=",".join(MODELS))
    options = parser.parse_args()
    if options.work:
        print(json.dumps(work(*options.work)))
        return 0
    print(f"{os.cpu_count()} cores; seconds, medians of {options.repeats}")
    print(
        f"{'model':10} {'neighbour':10} " + " ".join(f"{way:>10}" for way in WAYS) + "  chosen/best"
    )
    for model in options.models.split(","):
        for busy in (False, True):
            runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
            for _ in range(options.repeats):
                for way in WAYS:
                    runs[way].append(measure(model, way, busy))
            seconds = {way: median(run["seconds"] for run in runs[way]) for way in WAYS}
            same = len({json.dumps(run["tokens"]) for of in runs.values() for run in of}) == 1
            best = min(seconds["one core"], seconds["all cores"])
            cells = " ".join(f"{seconds[way]:10.2f}" for way in WAYS)
            ratio = seconds["as chosen"] / best
            note = "" if same else "  TOKENS DIFFER"
            print(
                f"{model:10} {'busy' if busy else 'none':10} {cells}  {ratio:.2f}{note}", flush=True
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
