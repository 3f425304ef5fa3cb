"""`rho-eos inspect`: a run as one HTML page."""

from pathlib import Path
from typing import Annotated

import typer

from rho_eos.errors import UserError


def inspect(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file; default: report.html in the run.")
    ] = None,
) -> int:
    """Write a report of a run to read in a browser: every sample, wrong answers first.

    One file that needs nothing else. Curves of ρ and length are there if the run was made with
    --trace.
    """
    from rho_eos.evals.runs.inspection import inspection_page

    page = inspection_page(run)
    path = out or run / "report.html"
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    print(path)
    return 0
