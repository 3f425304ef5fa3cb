"""`rho-eos compare`: runs side by side, and whether they really differ."""

from pathlib import Path

import typer

from rho_eos.base.errors import UserError


def compare(
    runs: list[Path] = typer.Argument(
        ..., help="Folders of runs, or of sweeps; the first is the baseline."
    ),
    form: str = typer.Option("terminal", "--format", "-f", help="terminal, markdown, csv or latex"),
    out: Path | None = typer.Option(
        None, "--out", "-o", help="Also write both tables into this folder."
    ),
) -> int:
    """Put runs into one table, and test each against the first on the same samples.

    The change of accuracy is in points, that of a cost a multiple of the baseline's, with 95%
    intervals (paired bootstrap). p is exact: McNemar's test for accuracy, the sign test for costs.

    [bold]Examples[/bold]

      rho-eos compare runs/fixed runs/daedal runs/asym

      rho-eos compare runs/sweep --format latex > table.tex
    """
    from rho_eos.evals.runs.compare import read_runs, runs_table, tests_table
    from rho_eos.evals.runs.table import FORMATS, show

    if form not in FORMATS:
        raise UserError(f"--format is {form!r}, but takes one of {', '.join(FORMATS)}")
    found = read_runs(runs)
    tables = {"runs": runs_table(found)}
    if len(found) > 1:
        tables["tests"] = tests_table(found)
    for number, (name, table) in enumerate(tables.items()):
        if number:
            print()
        show(table, form)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            table.write(out / name)
    return 0
