"""What a study found, as data: a table, what it says, and what a reader must know about it.

Markdown, CSV, LaTeX and JSON are written from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from rho_eos.evals.runs.run_folder import write_json
from rho_eos.evals.runs.table import Table


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    title: str
    table: Table
    notes: Sequence[str]
    section: str = "task"  # the column whose values part the table into several
    #: Of a section: what it says in sentences, `says`, and the facts that these are made of.
    verdicts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)  # more for the JSON: what was asked, …
    picture: str | None = None  # the name of its figure, which lies in the same folder

    def write(self, folder: Path) -> None:
        """NAME.md for people; NAME.csv and NAME.tex are the bare table; NAME.json is all of it."""
        self.table.write(folder / self.name)
        (folder / f"{self.name}.md").write_text(self.markdown(), encoding="utf-8")
        write_json(folder / f"{self.name}.json", self.as_dict())

    def as_dict(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "columns": list(self.table.columns),
            "rows": [list(row) for row in self.table.rows],
            "notes": list(self.notes),
            "verdicts": dict(self.verdicts),
            **self.facts,
        }

    def verdict_lines(self) -> list[str]:
        return [f"**{name}.** {verdict['says']}" for name, verdict in self.verdicts.items()]

    def markdown(self) -> str:
        picture = [f"![{self.title}]({self.picture}.png)"] if self.picture else []
        tables = [f"**{name}**\n\n{table.markdown().rstrip()}" for name, table in self.sections()]
        parts = [f"# {self.title}", *self.verdict_lines(), *picture, *tables, *self.notes]
        return "\n\n".join(parts) + "\n"

    def sections(self) -> list[tuple[str, Table]]:
        """The same rows, a table for each section; that column is gone."""
        table = self.table
        at = list(table.columns).index(self.section)

        def without(row: Sequence[str]) -> list[str]:
            return [*row[:at], *row[at + 1 :]]

        return [
            (name, Table(without(table.columns), [without(row) for row in rows], table.labels - 1))
            for name, rows in groupby(table.rows, key=lambda row: row[at])
        ]
