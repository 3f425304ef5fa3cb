"""A table of text once, in every form it is wanted: terminal, Markdown, CSV, LaTeX."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMATS = ("terminal", "markdown", "csv", "latex")
_SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "ρ": r"$\rho$",
    "τ": r"$\tau$",
    "Δ": r"$\Delta$",
    "×": r"$\times$",
    "<": r"$<$",
    ">": r"$>$",
}


@dataclass(frozen=True, slots=True)
class Table:
    """Cells are texts. The first `labels` columns name the row; the others are numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int = 1

    def markdown(self) -> str:
        rule = ["---"] * self.labels + ["---:"] * (len(self.columns) - self.labels)
        lines = [self.columns, rule, *self.rows]
        escaped = [[cell.replace("|", r"\|") for cell in line] for line in lines]
        return "".join(f"| {' | '.join(line)} |\n" for line in escaped)

    def csv(self) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *self.rows])
        return text.getvalue()

    def latex(self) -> str:
        """For `booktabs`."""
        align = "l" * self.labels + "r" * (len(self.columns) - self.labels)
        head, *body = (
            " & ".join(_latex(cell) for cell in line) + r" \\"
            for line in [self.columns, *self.rows]
        )
        lines = [rf"\begin{{tabular}}{{{align}}}", r"\toprule", head, r"\midrule", *body]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])

    def rich(self) -> Any:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=SIMPLE_HEAD, pad_edge=False)
        for number, column in enumerate(self.columns):
            justify: Any = "left" if number < self.labels else "right"
            table.add_column(Text(column), justify=justify, no_wrap=True)
        for row in self.rows:
            table.add_row(*(Text(cell) for cell in row))
        return table

    def records(self) -> Any:
        """A row under the other, for a terminal that is too narrow for the table."""
        from rich.columns import Columns
        from rich.console import Group
        from rich.text import Text

        parts: list[Any] = []
        for row in self.rows:
            parts.append(Text(" · ".join(row[: self.labels]), style="bold"))
            pairs = zip(self.columns[self.labels :], row[self.labels :], strict=True)
            parts.append(Columns([Text(f"{name} {cell}") for name, cell in pairs], padding=(0, 2)))
            parts.append("")
        return Group(*parts)

    def write(self, stem: Path) -> None:
        """Beside each other: stem.md, stem.csv, stem.tex."""
        for suffix, text in (
            (".md", self.markdown()),
            (".csv", self.csv()),
            (".tex", self.latex()),
        ):
            stem.with_suffix(suffix).write_text(text, encoding="utf-8")


def show(table: Table, form: str) -> None:
    """Print it; into a file or a pipe a terminal table is as wide as it needs to be."""
    if form != "terminal":
        print({"markdown": table.markdown, "csv": table.csv, "latex": table.latex}[form](), end="")
        return
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 1000
    drawn = table.rich()
    console.print(drawn if _width(drawn) <= console.width else table.records())


def _width(drawn: Any) -> int:
    from rich.console import Console

    return Console(width=1000).measure(drawn).maximum


def _latex(text: str) -> str:
    return "".join(_SPECIAL.get(character, character) for character in text)
