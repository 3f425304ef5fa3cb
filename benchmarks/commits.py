"""`python -m benchmarks.commits`: commit rules at equal accuracy, on the embedded models.

    python -m benchmarks.commits                   # 200 held-out problems a task, about an hour
    python -m benchmarks.commits --limit 20        # a first look

Every rule is run on tiny with ρ-EOS (Asym from 64), exact, and on terse with scout and the window
cache, since from 64 the other policies are deceived by the length there, whatever the rule. Of each
rule's settings the boldest one is taken that is right as often as the τ rule at 0.9 is, less one
point, on 25 problems a task that nothing is reported on; the table is then made on the others.
Finished runs are kept in --out.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.problems import REPORTED, questions
from rho_eos import LLM, DecodeParams

#: The settings of each rule, from the boldest to the most careful.
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "threshold": [{"threshold": tau} for tau in (0.9,)],
    "factor": [{"factor": factor} for factor in (1.3, 1.0, 0.7, 0.4)],
    "entropy-bound": [{"gamma": gamma} for gamma in (1.0, 0.3, 0.1, 0.03)],
    "klass": [{"threshold": tau} for tau in (0.6, 0.9)],
    "wino": [{"draft": draft} for draft in (0.6, 0.75, 0.9)],
    "quota": [{"steps_per_block": steps} for steps in (4, 8, 16, 32)],
}
LENGTHS: dict[str, dict[str, Any]] = {
    "tiny": {},
    "terse": {"policy": "scout", "cache": "window"},
}
CHOOSING = 25  # problems a task, behind those that are reported
LESS = 0.01  # accuracy that a setting may lose against the τ rule at 0.9


def run(llm: LLM, given: dict[str, Any], limit: int, first: int) -> dict[str, float]:
    """How many of the problems are right, and what an answer costs."""
    asked = questions(limit, first)
    outputs = llm.generate(
        [question.prompt for question in asked], DecodeParams(max_new_tokens=512, **given)
    )
    usage = [output.usage for output in outputs]
    right = sum(q.right(output.text) for q, output in zip(asked, outputs, strict=True))
    return {
        "accuracy": right / len(asked),
        "tokens a forward": sum(u.committed for u in usage) / sum(u.nfe for u in usage),
        "forwards": sum(u.nfe for u in usage) / len(asked),
        "positions": sum(u.positions_evaluated for u in usage) / len(asked),
    }


class Runs:
    """Runs by name, kept in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: dict[str, dict[str, float]] = {}
        if path.exists():
            self.done = json.loads(path.read_text())

    def run(self, llm: LLM, given: dict[str, Any], limit: int, first: int) -> dict[str, float]:
        name = json.dumps([llm.config.model, given, limit, first], sort_keys=True)
        if name not in self.done:
            self.done[name] = run(llm, given, limit, first)
            self.path.write_text(json.dumps(self.done, indent=1) + "\n")
        return self.done[name]


def choose(runs: Runs, llm: LLM, rule: str, bar: float) -> dict[str, Any]:
    """The boldest setting that is right often enough, or else the most careful one."""
    for settings in SETTINGS[rule]:
        given = {**LENGTHS[llm.config.model], "commit": rule, **settings}
        if runs.run(llm, given, CHOOSING, REPORTED)["accuracy"] >= bar - LESS:
            break
    return given


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=REPORTED, help="problems of each task")
    parser.add_argument("--out", type=Path, default=Path("bench-commits.json"))
    parser.add_argument("--models", nargs="+", default=[*LENGTHS], choices=[*LENGTHS])
    parser.add_argument("--rules", nargs="+", default=[*SETTINGS], choices=[*SETTINGS])
    options = parser.parse_args()
    runs = Runs(options.out)
    names = ("accuracy", "tokens a forward", "forwards", "positions")
    table = Table("model", "rule", "setting", *names)
    for model in options.models:
        llm = LLM(model, max_rows=16)
        usual = {**LENGTHS[model], "commit": "threshold", "threshold": 0.9}
        bar = runs.run(llm, usual, CHOOSING, REPORTED)["accuracy"]
        for rule in options.rules:
            given = choose(runs, llm, rule, bar)
            found = runs.run(llm, given, options.limit, 0)
            setting = ", ".join(f"{k} {v}" for k, v in given.items() if k in SETTINGS[rule][0])
            cells = [f"{found['accuracy']:.1%}", f"{found['tokens a forward']:.1f}"]
            cells += [f"{found['forwards']:.1f}", f"{found['positions']:,.0f}"]
            table.add_row(model, rule, setting, *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
