"""`rho-eos inspect`: a run as one HTML page."""

from pathlib import Path

import typer


def inspect(
    run: Path = typer.Argument(..., help="Folder of a run, or of a sweep."),
    out: Path | None = typer.Option(
        None, "--out", "-o", help="The file; default: report.html in the folder."
    ),
) -> int:
    """Write a report of a run to read in a browser: every sample, wrong answers first.

    One file that needs nothing else. Curves of ρ and length are there if the run was made with
    --trace. A sweep gets a page that compares its runs, and leads to a report in each of them.
    """
    from rho_eos.evals.runs.inspection import REPORT, inspection_page, is_sweep, sweep_page

    path = out or run / REPORT
    if is_sweep(run):
        page, inside = sweep_page(run, path)
        for folder in inside:
            _write(folder / REPORT, inspection_page(folder))
        _write(path, page)
    else:
        _write(path, inspection_page(run))
    return 0


def _write(path: Path, page: str) -> None:
    path.write_text(page, encoding="utf-8")
    print(path)
