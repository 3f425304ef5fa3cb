"""`make bench-cache`: what the window cache saves on the embedded model, and what it costs.

    python -m benchmarks.cache                # 200 held-out problems a task, about two hours
    python -m benchmarks.cache --limit 20     # a first look

{fixed 256, fixed 512, Asym, Sym, frontier} × {exact, window, block-wise dual cache} at τ 0.9 and at
τ 0.999, where the model commits 3 to 4 tokens a forward, as 8B models do. One run: positions
computed, seconds at batch 8, accuracy. The dual cache (tests/reference) has fixed lengths only and
decodes one row at a time, so its seconds are not compared; as published it fills the whole canvas,
and it is also run with our early stop. Blocks of 32. Finished cells are kept in --out and not run
again.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from rho_eos import LLM, DecodeParams
from rho_eos.evals import find_task
from rho_eos.models.attention import PackedRows
from rho_eos.tiny.tasks import TASKS
from tests.reference.bridge import rule_of
from tests.reference.cached import dual_cache_decode
from tests.reference.decoder import Ids, returned_tokens

POLICIES: dict[str, dict[str, Any]] = {
    "fixed 256": {"policy": "fixed", "initial_length": 256},
    "fixed 512": {"policy": "fixed", "initial_length": 512},
    "Asym from 64": {"preset": "asym"},
    "Sym from 64": {"preset": "sym"},
    "frontier from 64": {"policy": "frontier"},
}
MODES = ("exact", "window", "dual", "dual, early stop")
THRESHOLDS = (0.999, 0.9)
#: τ, and by how much exact decoding must compute more positions: fixed lengths, and all others.
GOALS = {0.999: (3.0, 2.3), 0.9: (1.5, 1.5)}
ACCURACY = 0.005  # at most so much less


class Kept:
    """Keys and values of one row for the dual cache; nothing of the engine's."""

    def __init__(self) -> None:
        self.layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.at: torch.Tensor | None = None

    def update(
        self, layer: int, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self.at is None:
            self.layers[layer] = key.clone(), value.clone()
        else:
            for whole, part in zip(self.layers[layer], (key, value), strict=True):
                whole[:, :, self.at] = part
        return self.layers[layer]


def dual_cache(llm: LLM, prompt: list[int], params: DecodeParams) -> tuple[list[int], int]:
    """The tokens of an answer, and the positions computed for it."""

    @torch.inference_mode()
    def forward(tokens: Sequence[int], compute: Sequence[int], kept: Kept) -> torch.Tensor:
        at = torch.tensor(compute)
        kept.at = None if len(at) == len(tokens) else at
        hidden = llm.model.model(
            input_ids=torch.tensor(tokens)[at][None],
            position_ids=at[None],
            rows=PackedRows((len(at),), (kept,)),
        ).last_hidden_state[0]
        logits: torch.Tensor = llm.model.lm_head(hidden).float()
        return logits

    ids = Ids(llm.special.mask, llm.special.eos, llm.special.ends)
    result = dual_cache_decode(forward, prompt, rule_of(params), ids, lambda _: Kept())
    return returned_tokens(result.canvas, ids), result.positions_evaluated


def run_cell(llm: LLM, how: dict[str, Any], mode: str, limit: int) -> dict[str, Any]:
    """All problems of all tasks: how many are right, and what they cost."""
    params = DecodeParams(max_new_tokens=512, cache="window" if mode == "window" else "none", **how)
    if mode == "dual":  # as published
        params = params.replaced(early_stop=False)
    right = problems = positions = forwards = 0
    seconds = 0.0
    for name in TASKS:
        task = find_task(name)
        samples = task.load(limit=limit)
        prompts = [{"messages": task.messages(sample)} for sample in samples]
        started = time.perf_counter()
        if mode.startswith("dual"):
            texts = []
            for prompt in prompts:
                request = llm.preparer.prepare(prompt, params)
                tokens, computed = dual_cache(llm, request.prompt, params)
                texts.append(llm.preparer.detokenize(tokens))
                positions += computed
        else:
            outputs = llm.generate(prompts, params)
            texts = [output.text for output in outputs]
            positions += sum(output.usage.positions_evaluated for output in outputs)
            forwards += sum(output.usage.nfe for output in outputs)
        seconds += time.perf_counter() - started
        grades = [task.grade(s, text).correct for s, text in zip(samples, texts, strict=True)]
        right += int(np.sum(grades))
        problems += len(samples)
    return {
        "accuracy": right / problems,
        "positions": positions / problems,
        "forwards": forwards / problems,
        "seconds": seconds,
        "problems": problems,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=200, help="problems a task")
    parser.add_argument("--out", type=Path, default=Path("bench-cache.json"))
    parser.add_argument("--thresholds", default=",".join(map(str, THRESHOLDS)))
    options = parser.parse_args()
    done: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    llm = LLM("tiny", max_rows=8)
    console = Console()
    for threshold in (float(text) for text in options.thresholds.split(",")):
        for policy, own in POLICIES.items():
            for mode in MODES if own.get("policy") == "fixed" else MODES[:2]:
                key = f"{options.limit} {threshold} {policy} {mode}"
                if key not in done:
                    with console.status(key):
                        done[key] = run_cell(
                            llm, {"threshold": threshold, **own}, mode, options.limit
                        )
                    options.out.write_text(json.dumps(done, indent=2) + "\n")
        show(done, options.limit, threshold, console)
    return 0


def show(done: dict[str, Any], limit: int, threshold: float, console: Console) -> None:
    table = Table(title=f"τ {threshold}, {limit} problems a task", title_justify="left")
    headings = ("policy", "cache", "right", "positions an answer", "times fewer", "seconds", "goal")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in headings[:2] else "right")
    for policy, own in POLICIES.items():
        exact = done[f"{limit} {threshold} {policy} exact"]
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
                f"{cell['seconds']:.1f}" if mode in MODES[:2] else "",
                goal,
            )
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
