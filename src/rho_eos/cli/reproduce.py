"""`rho-eos reproduce`: the paper's tables and figures."""

from typing import Any

import typer

from rho_eos.cli import options
from rho_eos.cli.study import make_study, run_study
from rho_eos.config import EngineConfig


def reproduce(
    engine: EngineConfig,
    measured: options.Measured,
    target: str = typer.Argument(
        ..., help="main, init-length, thresholds, expansion, signals, figures or all"
    ),
    profile: str | None = typer.Option(
        None, help="Lengths: paper, or tiny (a quarter; default for embedded models)."
    ),
    dry_run: options.DryRun = False,
    panels: options.Panels = False,
) -> int:
    """Make the tables and figures of the ρ-EOS paper (arXiv 2601.22527) with a model of yours.

    Runs what a table needs and is not there yet: tables share runs, and an interrupted command goes
    on where it stopped. Markdown, CSV, LaTeX, JSON, PNG, SVG and PDF go to --out, with an index.md.
    For LLaDA-8B-Instruct and LLaDA-1.5 the published numbers stand beside ours.

    [bold]Examples[/bold]

      rho-eos reproduce all --limit 24 --out reproduction

      rho-eos reproduce main --model GSAI-ML/LLaDA-8B-Instruct --max-rows 8 --out llada

      rho-eos reproduce thresholds --model GSAI-ML/LLaDA-1.5 --tasks gsm8k,mbpp --dry-run --out x
    """
    from rho_eos.reproduce.plan import choose_profile, make_plans
    from rho_eos.reproduce.tables import reproduce

    chosen = choose_profile(engine.model, profile)
    plans = make_plans(target, chosen, measured.task_names)
    study = make_study(engine, measured, plans, panels)

    def results_of(study: Any, finished: Any) -> Any:
        return reproduce(study, chosen, plans, finished)

    return run_study(study, plans, results_of, "index.md", dry_run, measured.unsafe_code)
