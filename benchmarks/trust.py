"""`python -m benchmarks.trust`: how much of what a short canvas foretells a long one confirms.

    python -m benchmarks.trust              # 20 problems a task that nothing is reported on

`scout` writes on a short canvas where that share is at least `trust`. It should lie far above it
for a model that writes the same on every canvas (`tiny`), and far below it for one that fits its
answer to the canvas (`terse`).
"""

import argparse

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.problems import REPORTED, questions
from rho_eos import LLM, DecodeParams, register_policy
from rho_eos.decoding.canvas import Canvas
from rho_eos.decoding.policies.scout import Scout, confirmed
from rho_eos.decoding.prediction import Prediction

SHARES: list[float] = []
QUANTILES = (0, 0.1, 0.5, 0.9, 1)


@register_policy
class Watched(Scout):
    name = "watched-scout"

    def _look(self, canvas: Canvas, prediction: Prediction, end: int | None) -> None:
        SHARES.extend(confirmed(short, prediction) for short in prediction.probes)
        super()._look(canvas, prediction, end)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=20, help="problems of each task")
    parser.add_argument("--temperature", type=float, default=0.0)
    options = parser.parse_args()
    asked = questions(options.limit, REPORTED)
    headings = ("least", "10%", "median", "90%", "most", "trusted")
    table = Table("model", *headings, title=f"confirmed share, {len(asked)} problems")
    for model in ("tiny", "terse"):
        SHARES.clear()
        params = DecodeParams(policy="watched-scout", temperature=options.temperature)
        LLM(model, max_rows=16).generate([question.prompt for question in asked], params)
        shares = np.array(SHARES)
        cells = [f"{share:.0%}" for share in np.quantile(shares, QUANTILES)]
        trusted = np.mean(shares >= params.model_dump()["trust"])
        table.add_row(model, *cells, f"{trusted:.0%}")
    Console().print(table)


if __name__ == "__main__":
    main()
