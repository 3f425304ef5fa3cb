"""`make bench-blocks`: what kept blocks save a block diffusion model, in one run.

    python -m benchmarks.blocks                    # the embedded model, and a random SDAR-1.7B
    python -m benchmarks.blocks --layers 7         # a quarter of its layers: minutes, not hours
    python -m benchmarks.blocks --rows 1           # one row at a time only
    python -m benchmarks.blocks --parts embedded   # only what is fast

Four ways to decode the same tokens: finished blocks kept, and computed once more with the next
block (fused) or in a forward of their own (separate); everything before a block computed anew at
its beginning (as dllm's sampler does); everything in every forward (as LLaDA2's published code
does). Then a chat of ten turns, with the blocks of earlier turns shared and without.

Tokens and positions do not depend on the machine. Seconds are compared within this run only, and
want a quiet machine.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.problems import questions
from rho_eos import LLM, Canvas, register_cache
from rho_eos.base.outputs import Output
from rho_eos.decoding.cache import BlockCache


@register_cache
class PrefixAnew(BlockCache):
    """Computes all blocks before the open one anew when it begins, and keeps them until it ends."""

    name = "prefix-anew"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.block = -1

    def positions(self, canvas: Canvas) -> np.ndarray:
        assert canvas.blocks is not None
        prompt = len(canvas.prompt)
        first, _ = canvas.open_block(canvas.blocks.length)
        start = self.block_start(canvas, prompt + first)
        begins, self.block = start != self.block, start
        return (
            np.arange(0, start) if begins and start else np.arange(start, prompt + canvas.visible)
        )

    def committed(self, *step: Any) -> None:
        """Nothing is final: it will be computed anew."""


WAYS: dict[str, dict[str, Any]] = {
    "kept, fused": {},
    "kept, separate": {"cache_store": "separate"},
    "prefix anew per block": {"cache": "prefix-anew"},
    "everything anew": {"cache": "none"},
}
#: SDAR-1.7B-Chat's shape, with the vocabulary of LLaDA.
SDAR: dict[str, Any] = {
    "model_type": "sdar",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 126464,
    "max_position_embeddings": 32768,
    "rope_theta": 1e6,
    "tie_word_embeddings": False,
    "block_size": 4,
    "mask_token_id": 126336,
    "eos_token_id": 126081,
}
PROMPTS, BATCHES = (64, 1500), [1, 8]
#: Two tokens a forward; random weights give no length, so the longest is taken.
ANSWER: dict[str, Any] = {"max_new_tokens": 32, "steps_per_block": 2, "threshold": 1.0}
#: (case, figure, at least): goals for prompts of 1,500.
GOALS = {"positions": 5.0, "seconds": 4.0}


def forget(llm: LLM) -> None:
    """Drop the blocks that were kept for other requests."""
    assert llm.runner.stores is not None
    llm.runner.stores.prefixes.shrink(0)


def measured(llm: LLM, prompts: list[Any], params: dict[str, Any]) -> dict[str, Any]:
    """One way, all prompts together."""
    forget(llm)
    started = time.perf_counter()
    outputs = llm.generate(prompts, params)
    seconds = time.perf_counter() - started
    each = [output.usage for output in outputs]
    return {
        "tokens": [output.token_ids for output in outputs],
        "seconds": seconds / len(outputs),
        "positions": sum(usage.positions_evaluated for usage in each) / len(outputs),
        "forwards": sum(usage.nfe for usage in each) / len(outputs),
    }


def compare(llm: LLM, prompts: list[Any], params: dict[str, Any]) -> dict[str, Any]:
    """All ways; the first run only warms up."""
    measured(llm, prompts[:1], {**params, "max_new_tokens": 8})
    found = {way: measured(llm, prompts, {**params, **own}) for way, own in WAYS.items()}
    tokens = [one.pop("tokens") for one in found.values()]
    found["same tokens"] = all(one == tokens[0] for one in tokens)
    return found


def show(title: str, found: dict[str, Any], console: Console) -> None:
    same = "the same tokens" if found["same tokens"] else "[red]tokens differ[/red]"
    table = Table(title=f"{title}: {same}", title_justify="left")
    for heading in ("way", "positions", "times", "forwards", "seconds", "times"):
        table.add_column(heading, justify="left" if heading == "way" else "right")
    best = found["kept, fused"]
    for way in WAYS:
        one = found[way]
        table.add_row(
            way,
            f"{one['positions']:,.0f}",
            f"{one['positions'] / best['positions']:.2f}",
            f"{one['forwards']:.1f}",
            f"{one['seconds']:.3f}",
            f"{one['seconds'] / best['seconds']:.2f}",
        )
    console.print(table)


def embedded(limit: int, console: Console) -> dict[str, Any]:
    llm = LLM("tiny-blocks")
    asked = [question.prompt for question in questions(limit, first=300)]
    found = {}
    for rows in BATCHES:
        llm.engine.scheduler.max_rows = rows
        name = f"tiny-blocks, {len(asked)} problems, {rows} rows at a time"
        found[name] = compare(llm, asked, {})
        show(name, found[name], console)
    return found


#: Ways to the right length on models of one size: what is asked, and of which model.
DUEL: dict[str, tuple[str, dict[str, Any]]] = {
    "tiny, fixed 512": ("tiny", {"policy": "fixed", "initial_length": 512}),
    "tiny, ρ-EOS from 64": ("tiny", {}),
    "tiny, ρ-EOS from 64, window": ("tiny", {"cache": "window"}),
    "tiny, scout": ("tiny", {"policy": "scout"}),
    "tiny, scout, window": ("tiny", {"policy": "scout", "cache": "window"}),
    "tiny-blocks": ("tiny-blocks", {}),
    "tiny-blocks, everything anew": ("tiny-blocks", {"cache": "none"}),
}


def duel(limit: int, console: Console) -> dict[str, Any]:
    """The same problems, both thresholds: what is right, what it costs, how long it takes."""
    llms = {name: LLM(name, max_rows=8) for name in ("tiny", "tiny-blocks")}
    asked, found = questions(limit), {}
    table = Table(title=f"{len(asked)} problems, 8 rows at a time", title_justify="left")
    for heading in ("τ", "way", "right", "positions", "forwards", "seconds"):
        table.add_column(heading, justify="left" if heading == "way" else "right")
    for threshold in (0.9, 0.999):
        for way, (model, how) in DUEL.items():
            params = {"threshold": threshold, "max_new_tokens": 512, **how}
            started = time.perf_counter()
            outputs = llms[model].generate([question.prompt for question in asked], params)
            seconds = (time.perf_counter() - started) / len(asked)
            right = sum(q.right(o.text) for q, o in zip(asked, outputs, strict=True)) / len(asked)
            positions = sum(o.usage.positions_evaluated for o in outputs) / len(asked)
            forwards = sum(o.usage.nfe for o in outputs) / len(asked)
            found[f"{threshold} {way}"] = [right, positions, forwards, seconds]
            cells = (f"{right:.1%}", f"{positions:,.0f}", f"{forwards:.1f}", f"{seconds:.3f}")
            table.add_row(f"{threshold}", way, *cells)
    console.print(table)
    return found


@contextmanager
def sdar(layers: int) -> Iterator[LLM]:
    """Random weights in SDAR's shape, so many layers of it."""
    from rho_eos.models.family import find_family

    family = find_family(SDAR)
    with tempfile.TemporaryDirectory() as folder:
        config = family.config.from_dict({**SDAR, "num_hidden_layers": layers})
        torch.manual_seed(0)
        family.masked_lm(config).bfloat16().save_pretrained(folder, max_shard_size="2GB")
        yield LLM(folder, dtype="float32", max_cache_megabytes=2048)


def random_model(layers: int, batches: list[int], console: Console) -> dict[str, Any]:
    found = {}
    with sdar(layers) as llm:
        rng = np.random.default_rng(0)
        for length in PROMPTS:
            for rows in batches:
                ids = [rng.integers(1000, 100_000, size=length).tolist() for _ in range(rows)]
                prompts = [{"prompt_token_ids": each} for each in ids]
                name = f"SDAR-1.7B, {layers} layers, prompts of {length}, {rows} rows"
                found[name] = compare(llm, prompts, ANSWER)
                show(name, found[name], console)
                if length == max(PROMPTS):
                    check_goals(found[name], console)
    return found


def check_goals(found: dict[str, Any], console: Console) -> None:
    best, worst = found["kept, fused"], found["everything anew"]
    for figure, least in GOALS.items():
        ratio = worst[figure] / best[figure]
        met = "[green]met[/green]" if ratio >= least else "[red]not met[/red]"
        console.print(
            f"{figure}: {ratio:.1f} times fewer than everything anew, goal {least}: {met}"
        )


def chat(layers: int, console: Console, turns: int = 10) -> list[dict[str, Any]]:
    """The same conversation twice. It begins with a system prompt of 400 tokens, and a turn's
    prompt is all that was said before and 60 tokens more."""
    rng = np.random.default_rng(1)
    system, *said = (
        rng.integers(1000, 100_000, size=size).tolist() for size in [400] + [60] * turns
    )
    with sdar(layers) as llm:
        return converse(llm, system, said, console)


def converse(
    llm: LLM, system: list[int], said: list[list[int]], console: Console
) -> list[dict[str, Any]]:
    def talk(shares: bool) -> list[Output]:
        history = system
        outputs = []
        forget(llm)
        for turn in said:
            if not shares:
                forget(llm)
            history = [*history, *turn]
            [output] = llm.generate([{"prompt_token_ids": history}], ANSWER)
            history = [*history, *output.token_ids]
            outputs.append(output)
        return outputs

    shared, alone = talk(True), talk(False)
    table = Table(title=f"A chat of {len(said)} turns", title_justify="left")
    for heading in ("turn", "prompt", "of it new", "positions", "shared", "first, s", "shared"):
        table.add_column(heading, justify="right")
    lines = []
    for number, (ours, theirs) in enumerate(zip(shared, alone, strict=True), 1):
        assert ours.token_ids == theirs.token_ids
        costs = [theirs.usage.positions_evaluated, ours.usage.positions_evaluated]
        seconds = [each.usage.seconds_to_first_token or 0.0 for each in (theirs, ours)]
        prompt = theirs.usage.prompt_tokens
        lines.append({"turn": number, "prompt": prompt, "positions": costs, "first": seconds})
        table.add_row(
            f"{number}",
            f"{prompt:,}",
            f"{prompt - ours.usage.positions_reused:,}",
            *(f"{cost:,}" for cost in costs),
            *(f"{each:.2f}" for each in seconds),
        )
    console.print(table)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--parts", default="embedded,duel,random,chat", help="some of them")
    parser.add_argument("--limit", type=int, default=10, help="problems a task")
    parser.add_argument("--layers", type=int, default=SDAR["num_hidden_layers"])
    parser.add_argument("--rows", type=int, nargs="+", default=BATCHES, help="of the random model")
    parser.add_argument("--out", type=Path, default=Path("bench-blocks.json"))
    options = parser.parse_args()
    console, report = Console(), {}
    if "embedded" in options.parts:
        report["embedded"] = embedded(options.limit, console)
    if "duel" in options.parts:
        report["duel"] = duel(options.limit, console)
    if "random" in options.parts:
        report["random"] = random_model(options.layers, options.rows, console)
    if "chat" in options.parts:
        report["chat"] = chat(options.layers, console)
    options.out.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
