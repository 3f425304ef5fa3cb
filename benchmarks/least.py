"""`python -m benchmarks.least`: what the commits alone would cost, beside what a policy computes.

    python -m benchmarks.least              # 15 problems a task that nothing is reported on
    python -m benchmarks.least --limit 4    # a first look

A length policy cannot drop the prompt, nor the canvas up to the furthest token of the text that
stands or is about to be committed. Summed over the steps that a policy made, that is the least
that the same commits could have cost with a policy that knows the future.

Committing the first of several MASKs that are about equally sure (`tie`) saves forwards as well.
What that alone does is seen where `scout` and Sym do it.
"""

import argparse
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.problems import REPORTED, questions
from rho_eos import LLM, DecodeParams
from rho_eos.base.outputs import Output

WAYS: dict[str, dict[str, Any]] = {
    "Sym from 256": {"preset": "sym", "initial_length": 256},
    "Asym from 64": {"preset": "asym", "initial_length": 64},
    "scout": {"policy": "scout", "tie": 0.0},
    "scout, tie 0.05": {"policy": "scout", "tie": 0.05},
    "Sym from 256, tie 0.05": {"preset": "sym", "initial_length": 256, "tie": 0.05},
}


def least(output: Output) -> int:
    """Prompt, and canvas up to the furthest token of the text so far, over all steps."""
    furthest = total = 0
    for record in output.trace:
        text = [at + 1 for at, _, _ in record.committed if at < output.usage.e_token]
        furthest = max([furthest, *text])
        total += output.usage.prompt_tokens + furthest
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=15, help="problems of each task")
    parser.add_argument("--threshold", type=float, default=0.999)
    options = parser.parse_args()
    llm = LLM("tiny", max_rows=16)
    asked = questions(options.limit, REPORTED)
    table = Table(title=f"{len(asked)} problems, τ {options.threshold:g}")
    for heading in ("policy", "right", "forwards", "positions", "of Sym's", "least", "of Sym's"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    whole = 0.0
    for name, how in WAYS.items():
        params = DecodeParams(max_new_tokens=512, threshold=options.threshold, trace=True, **how)
        outputs = llm.generate([question.prompt for question in asked], params)
        right = sum(q.right(o.text) for q, o in zip(asked, outputs, strict=True)) / len(asked)
        computed = sum(o.usage.positions_evaluated for o in outputs) / len(outputs)
        needed = sum(map(least, outputs)) / len(outputs)
        whole = whole or computed
        table.add_row(
            name,
            f"{right:.1%}",
            f"{sum(o.usage.nfe for o in outputs) / len(outputs):.1f}",
            f"{computed:,.0f}",
            f"{computed / whole:.0%}",
            f"{needed:,.0f}",
            f"{needed / whole:.0%}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
