"""A model of full size on this machine: seconds to load and to forward, and memory.

    python -m benchmarks.full_size /tmp/full-size      # 16 GB of disk, half an hour on 2 cores
    python -m benchmarks.full_size /tmp/full-size --keep --ways auto/int8

Writes a random LLaDA-8B into the folder (what is written depends on no download), measures each way
of running it in a process of its own, and removes it again. Time and memory do not depend on the
values of weights; quality does, and is not measured here. The machine should be quiet: what others
do at the time is in the seconds. Beside them, in brackets, stand the seconds that cores worked on
the forward: the work of others changes these less.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
WAYS = ("auto/none", "float32/none", "auto/int8", "auto/int4")
POSITIONS = (33, 81, 273)
CANVAS = 32


def measure(folder: str, dtype: str, quantization: str, positions: list[int]) -> dict[str, Any]:
    """In a process of its own: load, then one forward for each number of positions."""
    from rho_eos.base.errors import UserError
    from rho_eos.decoding.params import DecodeParams
    from rho_eos.llm import LLM

    own = _PeakOfOwn()
    started = time.perf_counter()
    try:
        llm = LLM(folder, dtype=dtype, quantization=quantization)
    except UserError as error:
        return {"refused": str(error)}
    found: dict[str, Any] = {"runs": llm.placement.sentence, "load": time.perf_counter() - started}
    found["loaded"] = own.peak
    one_step = DecodeParams(
        policy="fixed", initial_length=CANVAS, max_new_tokens=CANVAS, steps=1, early_stop=False
    )
    found["seconds"], found["core_seconds"], found["tokens"] = {}, {}, {}
    for count in [positions[0], *positions]:  # the first one also reads what is only mapped so far
        prompt = {"prompt_token_ids": [1000 + 7 * index for index in range(count - CANVAS)]}
        started, busy = time.perf_counter(), time.process_time()
        output = llm.generate([prompt], one_step)[0]
        found.setdefault("first", time.perf_counter() - started)
        found["seconds"][count] = time.perf_counter() - started
        found["core_seconds"][count] = time.process_time() - busy
        found["tokens"][count] = output.canvas_token_ids
    found["memory"] = _memory() | {"own peak": own.peak}
    return found


class _PeakOfOwn(threading.Thread):
    """The most memory that was the process's own; VmHWM also counts what is mapped from files."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0.0
        self.start()

    def run(self) -> None:
        while True:
            self.peak = max(self.peak, _memory().get("own", 0.0))
            time.sleep(0.02)


def _memory() -> dict[str, float]:
    """GB: what is the process's own now, what is mapped from the checkpoint, the peak of both."""
    names = {"VmHWM": "peak", "RssAnon": "own", "RssFile": "mapped"}
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    fields = {line.split(":")[0]: line.split()[1] for line in lines if line.split(":")[0] in names}
    return {names[field]: int(size) * 1024 / 1e9 for field, size in fields.items()}


def in_process(arguments: list[str], seconds: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.full_size", "--measure", *arguments]
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "OMP_WAIT_POLICY": "PASSIVE",  # so that waiting for another thread is not counted as work
    }
    try:
        done = subprocess.run(
            command,
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"refused": f"took more than {seconds:.0f} s"}
    if done.returncode:
        return {"refused": f"ended with {done.returncode}: {done.stderr.strip()[-300:]}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def row(way: str, found: dict[str, Any], reference: dict[str, Any] | None) -> str:
    if "refused" in found:
        return f"{way:<14} {found['refused']}"
    seconds = "  ".join(
        f"{found['seconds'][count]:6.1f} ({found['core_seconds'][count]:6.1f})"
        for count in found["seconds"]
    )
    memory = "  ".join(
        f"{found['memory'].get(name, 0):6.1f}" for name in ("own peak", "own", "mapped")
    )
    same = ""
    if reference is not None:
        pairs = [
            (mine, theirs)
            for count, tokens in found["tokens"].items()
            for mine, theirs in zip(tokens, reference["tokens"][count], strict=True)
        ]
        same = f"{sum(mine == theirs for mine, theirs in pairs)}/{len(pairs)}"
    start = f"{found['load']:7.1f}  {found['first']:7.1f}"
    return f"{way:<14} {start}  {seconds}  {memory}  {same:>7}  {found['runs']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("folder", type=Path, help="where the checkpoint is written")
    parser.add_argument("--model", choices=("llada-8b", "llada-moe"), default="llada-8b")
    parser.add_argument("--layers", type=int, help="fewer layers than published, to try it out")
    parser.add_argument("--ways", default=",".join(WAYS), help="dtype/quantization, …")
    parser.add_argument("--positions", default=",".join(map(str, POSITIONS)))
    parser.add_argument("--seconds", type=float, default=1800, help="most for one way")
    parser.add_argument("--keep", action="store_true", help="do not remove the checkpoint")
    parser.add_argument("--measure", nargs=2, metavar=("DTYPE", "QUANTIZATION"), help="internal")
    given = parser.parse_args()
    positions = [int(word) for word in given.positions.split(",")]
    if given.measure:
        print(json.dumps(measure(str(given.folder), *given.measure, positions)))
        return
    folder = given.folder / given.model
    if not (folder / "config.json").exists():
        from benchmarks.random_checkpoint import LLADA_8B, LLADA_MOE, write_checkpoint

        config = LLADA_8B if given.model == "llada-8b" else LLADA_MOE
        started = time.perf_counter()
        size = write_checkpoint(folder, config, given.layers)
        print(f"{size / 1e9:.1f} GB written in {time.perf_counter() - started:.0f} s")
    try:
        head = "  ".join(f"{f'{count} positions':>15}" for count in positions)
        print(f"{'dtype/quant.':<14} {'load s':>7}  {'first':>7}  {head}", end="")
        print("    peak   after  mapped GB  same")
        reference = None
        for way in given.ways.split(","):
            ask = [*way.split("/"), str(folder), "--positions", given.positions]
            found = in_process(ask, given.seconds)
            print(row(way, found, reference), f"load average {os.getloadavg()[0]:.1f}", flush=True)
            reference = reference or (None if "refused" in found else found)
    finally:
        if not given.keep:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
