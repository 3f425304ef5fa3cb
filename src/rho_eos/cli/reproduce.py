"""`rho-eos reproduce`: the paper's tables and figures."""

from typing import Any

import typer

from rho_eos.base.errors import UserError
from rho_eos.cli import options
from rho_eos.cli.options import listed
from rho_eos.cli.study import run_study


def reproduce(
    engine_options: dict[str, Any],
    out: options.Out,
    target: str = typer.Argument(
        ..., help="main, init-length, thresholds, expansion, signals, figures or all"
    ),
    tasks: options.Tasks = "",
    limit: options.Limit = None,
    skip: options.Skip = 0,
    repeats: options.Repeats = 1,
    shuffle_seed: options.ShuffleSeed = None,
    data: options.Data = None,
    profile: str | None = typer.Option(
        None, help="Lengths: paper, or tiny (a quarter; default for embedded models)."
    ),
    unsafe_code: options.UnsafeCode = False,
    dry_run: options.DryRun = False,
) -> int:
    """Make the tables and figures of the ρ-EOS paper (arXiv 2601.22527) with a model of yours.

    Runs what a table needs and is not there yet: tables share runs, and an interrupted command goes
    on where it stopped. Markdown, CSV, LaTeX and JSON, PNG and SVG go to --out, with an index.md.
    For LLaDA-8B-Instruct and LLaDA-1.5 the published numbers stand beside ours.

    [bold]Examples[/bold]

      rho-eos reproduce all --limit 24 --out reproduction

      rho-eos reproduce main --model GSAI-ML/LLaDA-8B-Instruct --max-rows 8 --out llada

      rho-eos reproduce thresholds --model GSAI-ML/LLaDA-1.5 --tasks gsm8k,mbpp --dry-run --out x
    """
    from rho_eos.config import EngineConfig
    from rho_eos.evals.runs.evaluation import find_data
    from rho_eos.evals.studies.study import Study
    from rho_eos.reproduce.plan import TARGETS, plan_figures, plan_tables
    from rho_eos.reproduce.profiles import choose_profile
    from rho_eos.reproduce.run import reproduce

    if target not in TARGETS:
        raise UserError(f"reproduce got {target!r}, but takes one of {', '.join(TARGETS)}")
    config = EngineConfig.from_mapping(engine_options)
    chosen = choose_profile(config, profile)
    tables = plan_tables(target, chosen, listed(tasks))
    figures = plan_figures(target, chosen, listed(tasks))
    plans = [*tables, *figures]
    used = list(dict.fromkeys(task for plan in plans for task in plan.tasks))
    study = Study(
        config=config,
        scale=chosen.scale,
        folder=out,
        limit=limit,
        skip=skip,
        repeats=repeats,
        shuffle_seed=shuffle_seed,
        data=find_data(used, data or []),
    )

    def run(open_model: Any, watch: Any) -> Any:
        return reproduce(study, chosen, tables, figures, open_model, watch, unsafe_code)

    return run_study(study, plans, engine_options, run, out / "index.md", dry_run)
