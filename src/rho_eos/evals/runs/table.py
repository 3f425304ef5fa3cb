"""A table of text once, in every form it is wanted: terminal, Markdown, CSV, LaTeX."""

import csv
import io
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FORMATS = ("terminal", "markdown", "csv", "latex")
_SIGNS = dict(
    zip("±×ρτΔ<>", (r"\pm", r"\times", r"\rho", r"\tau", r"\Delta", "<", ">"), strict=True)
)
_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--"}
    | {character: f"${sign}$" for character, sign in _SIGNS.items()}
)


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
        """The table in LaTeX, for the package `booktabs`."""
        align = "l" * self.labels + "r" * (len(self.columns) - self.labels)
        head, *body = (
            " & ".join(cell.translate(_LATEX) for cell in line) + r" \\"
            for line in [self.columns, *self.rows]
        )
        lines = [rf"\begin{{tabular}}{{{align}}}", r"\toprule", head, r"\midrule", *body]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])

    def terminal(self, narrower_than: int | None = None) -> str:
        """Columns side by side; where that is too wide, a row under the other."""
        lines = [self.columns, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        wide = sum(widths) + 2 * (len(widths) - 1)
        if narrower_than is not None and wide >= narrower_than:
            return "\n".join(self._record(row, narrower_than - 1) for row in self.rows)
        aligned = [
            "  ".join(
                cell.ljust(width) if at < self.labels else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([aligned[0], "─" * wide, *aligned[1:], ""])

    def _record(self, row: Sequence[str], width: int) -> str:
        pairs = zip(self.columns[self.labels :], row[self.labels :], strict=True)
        numbers = " · ".join(f"{name} {cell}" for name, cell in pairs)
        told = textwrap.fill(numbers, width, initial_indent="  ", subsequent_indent="  ")
        return f"{' · '.join(row[: self.labels])}\n{told}\n"

    def write(self, stem: Path) -> None:
        """Write stem.md, stem.csv and stem.tex."""
        for suffix, text in ((".md", self.markdown), (".csv", self.csv), (".tex", self.latex)):
            stem.with_suffix(suffix).write_text(text(), encoding="utf-8")


def show(table: Table, form: str) -> None:
    """Print it; into a file or a pipe a terminal table is as wide as it needs to be."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    forms = {"markdown": table.markdown, "csv": table.csv, "latex": table.latex}
    print(forms[form]() if form in forms else table.terminal(width), end="")
