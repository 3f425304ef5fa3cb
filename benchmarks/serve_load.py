"""`python -m benchmarks.serve_load`: what continuous batching gives clients of the server.

A real server process, real HTTP connections. The same requests are sent one after another, then by
1, 8, 32 and 128 clients at once: first problems of one or two steps, whose forwards are too short
to fill a processor, then problems of all lengths. Every figure is a ratio within this run, on this
machine, and the answers must be those that the lone client got.
"""

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table

from rho_eos.tiny.tasks import TASKS

LEVELS = (1, 8, 32, 128)
LOADS = {"short answers": 2, "answers of all lengths": None}  # and the most steps to one
Body = dict[str, Any]
#: What must hold: at so many clients, at least so many times the sequential throughput.
REQUIRED = (32, 3.0)


@dataclass(frozen=True)
class Load:
    """What one level of concurrency measured."""

    name: str
    requests_per_second: float
    tokens_per_second: float
    p50: float  # seconds from sending a request to its whole answer
    p95: float
    p99: float
    times_sequential: float
    equal_answers: int


def requests(count: int, max_tokens: int, steps: int | None = None) -> list[Body]:
    """Held-out problems of all the embedded model's tasks in turn, of at most so many steps."""
    prompts = [
        task.problem(seed, None if steps is None else 1 + seed % steps).prompt
        for seed in range(-(-count // len(TASKS)))
        for task in TASKS.values()
    ]
    return [
        {
            "model": "model",
            "max_tokens": max_tokens,
            "messages": [{"role": "user", "content": prompt}],
        }
        for prompt in prompts[:count]
    ]


@contextmanager
def server(model: str) -> Iterator[str]:
    """A `rho-eos serve` process on a free port of this machine; its address."""
    command = [sys.executable, "-m", "rho_eos", "serve", "--model", model, "--port", "0"]
    with tempfile.NamedTemporaryFile("w+") as log:
        process = subprocess.Popen(
            [*command, "--served-model-name", "model"], stderr=log, text=True
        )
        try:
            yield _address(process, Path(log.name))
        finally:
            process.terminate()
            process.wait(60)


def _address(process: "subprocess.Popen[str]", log: Path) -> str:
    while process.poll() is None:
        found = re.search(r"serving .* at (http://\S+)", log.read_text())
        if found:
            try:
                httpx.get(f"{found[1]}/ready", trust_env=False).raise_for_status()
            except httpx.TransportError:
                pass  # it has its address but does not listen yet
            else:
                return found[1]
        time.sleep(0.1)
    raise SystemExit(f"the server did not start:\n{log.read_text()}")


async def send(url: str, bodies: list[Body], clients: int) -> tuple[float, list[dict[str, Any]]]:
    """All requests, by so many clients at once: seconds in all, and for each what came back."""
    results: list[dict[str, Any]] = [{} for _ in bodies]
    todo = iter(enumerate(bodies))
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)

    async def client(http: httpx.AsyncClient) -> None:
        for index, body in todo:  # shared: whoever is free takes the next
            began = time.perf_counter()
            answer = await http.post("/v1/chat/completions", json=body)
            answer.raise_for_status()
            results[index] = answer.json() | {"seconds": time.perf_counter() - began}

    async with httpx.AsyncClient(
        base_url=url, timeout=3600, limits=limits, trust_env=False
    ) as http:
        began = time.perf_counter()
        await asyncio.gather(*(client(http) for _ in range(clients)))
        return time.perf_counter() - began, results


def measure(
    name: str, url: str, bodies: list[Body], clients: int, baseline: tuple[float, list[str]] | None
) -> tuple[Load, float, list[str]]:
    seconds, results = asyncio.run(send(url, bodies, clients))
    answers = [result["choices"][0]["message"]["content"] for result in results]
    tokens = sum(result["usage"]["completion_tokens"] for result in results)
    p50, p95, p99 = np.percentile([result["seconds"] for result in results], (50, 95, 99))
    base_seconds, base_answers = baseline or (seconds, answers)
    load = Load(
        name=name,
        requests_per_second=len(bodies) / seconds,
        tokens_per_second=tokens / seconds,
        p50=float(p50),
        p95=float(p95),
        p99=float(p99),
        times_sequential=base_seconds / seconds,
        equal_answers=sum(a == b for a, b in zip(answers, base_answers, strict=True)),
    )
    return load, seconds, answers


def measure_levels(url: str, bodies: list[Body], console: Console) -> list[Load]:
    asyncio.run(send(url, bodies[:8], 8))  # first forwards are slower than the rest
    with console.status("one after another"):
        first, seconds, answers = measure("sequential", url, bodies, 1, None)
    loads = [first]
    for clients in LEVELS:
        with console.status(f"{clients} at once"):
            load, _, _ = measure(f"{clients}", url, bodies, clients, (seconds, answers))
        loads.append(load)
    return loads


def show(name: str, loads: list[Load], count: int) -> Table:
    table = Table(title=f"{count} requests to one server process, {name}")
    for column in ("clients", "requests/s", "tokens/s", "p50 s", "p95 s", "p99 s", "× sequential"):
        table.add_column(column, justify="right")
    table.add_column("answers equal", justify="right")
    for load in loads:
        table.add_row(
            load.name,
            f"{load.requests_per_second:.2f}",
            f"{load.tokens_per_second:.0f}",
            *(f"{seconds:.2f}" for seconds in (load.p50, load.p95, load.p99)),
            f"{load.times_sequential:.2f}",
            f"{load.equal_answers} of {count}",
        )
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--requests", type=int, default=128)
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--output", type=Path, default=Path("serve_load.json"))
    options = parser.parse_args()
    console = Console()
    measured: dict[str, list[Load]] = {}
    met = []
    with server(options.model) as url:
        for name, steps in LOADS.items():
            bodies = requests(options.requests, options.max_tokens, steps)
            measured[name] = loads = measure_levels(url, bodies, console)
            console.print(show(name, loads, len(bodies)))
            clients, least = REQUIRED
            [reached] = [load.times_sequential for load in loads if load.name == str(clients)]
            equal = all(load.equal_answers == len(bodies) for load in loads)
            met.append(reached >= least and equal)
            console.print(
                f"at {clients} clients {reached:.2f}× the sequential throughput, "
                f"required {least:g}×: {'met' if reached >= least else 'NOT met'}; "
                f"answers {'all equal' if equal else 'NOT all equal'}"
            )
    figures = {name: [asdict(load) for load in loads] for name, loads in measured.items()}
    options.output.write_text(json.dumps(figures, indent=2) + "\n")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
