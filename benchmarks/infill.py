"""`python -m benchmarks.infill`: lines cut out of the embedded model's programs, and put back.

    python -m benchmarks.infill                # 200 lines, some minutes
    python -m benchmarks.infill --limit 40     # a first look

Held-out problems of the two programming tasks. Of each program one line is cut, never the first or
the last; the model sees the question, the lines before and the lines behind. A case counts if the
line comes back to the letter. With the length given (`fixed`), and with lengths that are searched.
"""

import argparse
import random
import sys
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from rho_eos import LLM, DecodeParams
from rho_eos.base.outputs import Output
from rho_eos.text.ask import Ask
from rho_problems import held_out

TASKS = ("tiny-mbpp", "tiny-humaneval")
GOAL = 0.9  # with the length given
SEARCHES: dict[str, dict[str, Any]] = {
    "cal, as published": {"evidence": "confidence"},
    "cal, not calibrated": {"evidence": "confidence", "calibrated": False},
    "cal by the suffix, patience 4": {"patience": 4},
    "cal by the suffix, patience 8": {},
    "cal by the suffix, from 16, patience 8": {"initial_length": 16},
}


@dataclass(frozen=True)
class Case:
    prompt: str
    before: str
    line: str  # with the line break before it
    behind: str


def cases(limit: int, seed: int = 0) -> list[Case]:
    """So many programs with a line cut out, half of them of either task."""
    rng = random.Random(seed)
    found = []
    for index, task in enumerate(TASKS):
        for problem in held_out(task, (limit + 1 - index) // len(TASKS)):
            lines = problem.answer.split("\n")
            cut = rng.randrange(1, len(lines) - 1)
            found.append(
                Case(
                    problem.prompt,
                    "\n".join(lines[:cut]),
                    f"\n{lines[cut]}",
                    "\n" + "\n".join(lines[cut + 1 :]),
                )
            )
    return found


def put_back(llm: LLM, wanted: list[Case], how: dict[str, Any]) -> list[Output]:
    """All at once. Without an initial length in `how`, each gets the length of its line."""
    requests = []
    for case in wanted:
        length = len(llm.tokenizer.encode(case.line, add_special_tokens=False))
        given = {"initial_length": length} if how["policy"] == "fixed" else {}
        params = DecodeParams.from_mapping({**given, **how})
        messages = {"messages": [{"role": "user", "content": case.prompt}]}
        ask = Ask(messages, params, answer_prefix=case.before, suffix=case.behind)
        requests += llm.preparer.prepare(ask)
    return llm.engine.finish([llm.engine.submit(request) for request in requests])


def restored(wanted: list[Case], outputs: list[Output]) -> float:
    """The share of lines that came back to the letter."""
    return sum(o.text == c.line for c, o in zip(wanted, outputs, strict=True)) / len(wanted)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=200, help="lines")
    options = parser.parse_args()
    llm = LLM("tiny")
    wanted = cases(options.limit)
    lengths = [len(llm.tokenizer.encode(c.line, add_special_tokens=False)) for c in wanted]
    table = Table(title=f"{len(wanted)} lines of {min(lengths)} to {max(lengths)} tokens")
    for heading in ("length", "right length", "restored", "forwards", "positions"):
        table.add_column(heading, justify="left" if heading == "length" else "right")
    rows: dict[str, dict[str, Any]] = {"given": {"policy": "fixed"}}
    rows["given, window cache"] = {"policy": "fixed", "cache": "window"}
    rows |= {name: {"policy": "cal", **how} for name, how in SEARCHES.items()}
    rows["cal by the suffix, patience 8, window cache"] = {"policy": "cal", "cache": "window"}
    shares = {}
    for name, how in rows.items():
        outputs = put_back(llm, wanted, how)
        right = [o.usage.n_token == n for o, n in zip(outputs, lengths, strict=True)]
        shares[name] = restored(wanted, outputs)
        table.add_row(
            name,
            f"{sum(right) / len(right):.1%}",
            f"{shares[name]:.1%}",
            f"{sum(o.usage.nfe for o in outputs) / len(outputs):.1f}",
            f"{sum(o.usage.positions_evaluated for o in outputs) / len(outputs):,.0f}",
        )
    Console().print(table)
    reached = shares["given"] >= GOAL
    print(f"with the length given at least {GOAL:.0%}: {'yes' if reached else 'NO'}")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
