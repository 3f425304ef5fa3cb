"""What the ρ-EOS paper reports (arXiv 2601.22527), to stand beside ours: `published.csv`.

Its protocol: the whole benchmark, L_init 64, batch 8, three repeats averaged, temperature 0. Of
fixed lengths only the best of each task is given; it was run one token a step. Seconds are of the
authors' machine. (In the table of signals two-stage confidence on MBPP is not the main table's
DAEDAL, 39.4.)
"""

import csv
from collections.abc import Sequence
from pathlib import Path, PurePath

from rho_eos.evals.runs.report import NONE
from rho_eos.evals.runs.table import Table

SOURCE = "arXiv 2601.22527"
FILE = Path(__file__).with_name("published.csv")


def paper_model(model: str) -> str | None:
    """Which of the paper's models this is, by the name of its folder or on the Hub."""
    # The Hub's cache has folders such as models--GSAI-ML--LLaDA-1.5.
    names = [part.rpartition("--")[2].lower() for part in PurePath(model).parts]
    known = {row["model"] for row in _read()}
    return next((each for name in names for each in known if each.lower() == name), None)


def beside_published(model: str, name: str, table: Table) -> Table:
    """The table of that name with each published column after ours; none that would be empty."""
    # The main table is L_init 64 of the one that varies it.
    name, suffix = ("main", " from 64") if name == "init-length" else (name, "")
    published = {
        (row["task"], row["row"] + suffix): row
        for row in _read()
        if row["model"] == paper_model(model) and row["table"] == name
    }
    found = [published.get((task, label), {}) for label, task, *_ in table.rows]
    columns: list[tuple[str, Sequence[str]]] = []  # a name, and its cells
    for name, *cells in zip(table.columns, *table.rows, strict=True):
        columns.append((name, cells))
        if any(numbers.get(name) for numbers in found):
            columns.append((f"paper {name}", [each.get(name) or NONE for each in found]))
    names, contents = zip(*columns, strict=True)
    return Table(names, list(zip(*contents, strict=True)), table.labels)


def _read() -> list[dict[str, str]]:
    with FILE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
