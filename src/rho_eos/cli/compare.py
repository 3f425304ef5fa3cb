"""`rho-eos compare`: runs side by side, and whether they really differ."""

from pathlib import Path

import typer

from rho_eos.base.errors import UserError
from rho_eos.cli.options import Panels


def compare(
    runs: list[Path] = typer.Argument(..., help="Folders of runs, or of sweeps."),
    form: str = typer.Option("terminal", "--format", "-f", help="terminal, markdown, csv or latex"),
    against: str | None = typer.Option(
        None, metavar="NAME", help="The run that the others are tested against, if not the first."
    ),
    out: Path | None = typer.Option(
        None, "--out", "-o", help="Also write both tables, and tidy.csv, into this folder."
    ),
    figure: Path | None = typer.Option(
        None, help="Draw accuracy against cost into this file: .png, .svg or .pdf."
    ),
    cost: str = typer.Option("positions", help="With --figure: positions, NFE, N_token, …"),
    panels: Panels = False,
) -> int:
    """Put runs into one table, and test each against one of them on the same samples.

    The change of accuracy is in points, with Newcombe's 95% interval; that of a cost is a multiple
    of the baseline's, with the interval of the paired bootstrap. p is exact: McNemar's test for
    accuracy, the sign test for costs. A dash stands where nothing differed.

    [bold]Examples[/bold]

      rho-eos compare runs/fixed runs/daedal runs/asym

      rho-eos compare runs/sweep --against fixed --format latex > table.tex

      rho-eos compare runs/sweep --figure pareto.pdf --cost NFE
    """
    from rho_eos.evals.runs.compare import read_runs, runs_in, runs_table, tests_table
    from rho_eos.evals.runs.table import FORMATS, show
    from rho_eos.evals.runs.tidy import TIDY, write_tidy

    if form not in FORMATS:
        raise UserError(f"--format is {form!r}, but takes one of {', '.join(FORMATS)}")
    found = read_runs(runs)
    tables = {"runs": runs_table(found)}
    if len(found) > 1:
        tables["tests"] = tests_table(found, against)
    elif against is not None:
        raise UserError("--against takes several runs")
    if figure is not None:
        from rho_eos.evals.studies.study import drawing

        pareto = drawing("rho_eos.evals.studies.pareto")
        pareto.write_pareto(found, figure, cost, panels)
    for number, (name, table) in enumerate(tables.items()):
        if number:
            print()
        show(table, form)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            table.write(out / name)
            write_tidy(out / TIDY, [run for folder in runs for run in runs_in(folder)])
    return 0
