"""`python -m benchmarks.serve_load`: requests a second, exact and with the window cache.

A real server process, real HTTP connections. The same held-out problems of the embedded model are
sent by 1, 8 and 32 clients, each time without and with the cache, at τ 0.999, where the model
commits 3 to 4 tokens a forward, as 8B models do. Every figure is a ratio within this run, on this
machine. The answers of a mode must be the same at every number of clients, and are graded.
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

from benchmarks.problems import Question, questions

LEVELS = (1, 8, 32)
MODES = {"exact": "none", "window": "window"}
Body = dict[str, Any]
#: What must hold: at so many clients, so many times the throughput of exact decoding.
REQUIRED = (32, 2.0)


@dataclass(frozen=True)
class Load:
    """What one mode measured at one level of concurrency."""

    mode: str
    clients: int
    requests_per_second: float
    tokens_per_second: float
    p50: float  # seconds from sending a request to its whole answer
    p95: float
    right: int
    changed: int  # answers that are not those of one client


def body(question: Question, options: argparse.Namespace, mode: str) -> Body:
    return {
        "model": "model",
        "max_tokens": options.max_tokens,
        "threshold": options.threshold,
        "cache": MODES[mode],
        **question.prompt,
    }


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
    url: str, asked: list[Question], options: argparse.Namespace, mode: str, clients: int
) -> tuple[Load, list[str]]:
    bodies = [body(question, options, mode) for question in asked]
    seconds, results = asyncio.run(send(url, bodies, clients))
    answers = [result["choices"][0]["message"]["content"] for result in results]
    tokens = sum(result["usage"]["completion_tokens"] for result in results)
    p50, p95 = np.percentile([result["seconds"] for result in results], (50, 95))
    load = Load(
        mode=mode,
        clients=clients,
        requests_per_second=len(bodies) / seconds,
        tokens_per_second=tokens / seconds,
        p50=float(p50),
        p95=float(p95),
        right=sum(question.right(text) for question, text in zip(asked, answers, strict=True)),
        changed=0,
    )
    return load, answers


def measure_levels(
    url: str, asked: list[Question], options: argparse.Namespace, console: Console
) -> list[Load]:
    for mode in MODES:  # first forwards are slower than the rest
        asyncio.run(send(url, [body(question, options, mode) for question in asked[:8]], 8))
    loads = []
    alone: dict[str, list[str]] = {}
    for clients in LEVELS:
        for mode in MODES:
            with console.status(f"{clients} clients, {mode}"):
                load, answers = measure(url, asked, options, mode, clients)
            first = alone.setdefault(mode, answers)
            changed = sum(a != b for a, b in zip(answers, first, strict=True))
            loads.append(Load(**asdict(load) | {"changed": changed}))
    return loads


def show(loads: list[Load], count: int) -> Table:
    table = Table(title=f"{count} requests to one server process")
    for column in ("clients", "cache", "requests/s", "× exact", "× one client", "tokens/s"):
        table.add_column(column, justify="left" if column == "cache" else "right")
    for column in ("p50 s", "p95 s", "right", "changed"):
        table.add_column(column, justify="right")
    by = {(load.clients, load.mode): load.requests_per_second for load in loads}
    for load in loads:
        speed = load.requests_per_second
        table.add_row(
            *(str(load.clients), load.mode, f"{speed:.2f}"),
            f"{speed / by[load.clients, 'exact']:.2f}",
            f"{speed / by[LEVELS[0], load.mode]:.2f}",
            f"{load.tokens_per_second:.0f}",
            *(f"{seconds:.2f}" for seconds in (load.p50, load.p95)),
            *(f"{load.right} of {count}", str(load.changed)),
        )
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--problems", type=int, default=24, help="of each of the four tasks")
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--threshold", type=float, default=0.999)
    parser.add_argument("--output", type=Path, default=Path("serve_load.json"))
    options = parser.parse_args()
    console = Console()
    asked = questions(options.problems)
    with server(options.model) as url:
        loads = measure_levels(url, asked, options, console)
    console.print(show(loads, len(asked)))
    options.output.write_text(json.dumps([asdict(load) for load in loads], indent=2) + "\n")
    clients, least = REQUIRED
    exact, window = (load for load in loads if load.clients == clients)
    reached = window.requests_per_second / exact.requests_per_second
    met = reached >= least and window.right >= exact.right
    console.print(
        f"at {clients} clients the cache gives {reached:.2f}× the throughput of exact decoding, "
        f"required {least:g}× with as many right: {'met' if met else 'NOT met'}; "
        f"answers that depend on company: {sum(load.changed for load in loads)}"
    )
    return 0 if met and not any(load.changed for load in loads) else 1


if __name__ == "__main__":
    sys.exit(main())
