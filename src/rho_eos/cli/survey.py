"""`rho-eos survey`: all ways to choose a length, side by side on one model."""

import typer

from rho_eos.base.errors import UserError
from rho_eos.cli import options
from rho_eos.cli.options import listed
from rho_eos.cli.study import make_study, run_study
from rho_eos.config import EngineConfig

ELSEWHERE = {"policy": "--policies", "initial_length": "--lengths"}


def survey(
    engine: EngineConfig,
    measured: options.Measured,
    name: str = typer.Argument(
        ..., help="lengths; or stress, for a model that may compress its answers"
    ),
    policies: str = typer.Option(
        "", help="Run only these, separated by commas: fixed, asym, scout, …"
    ),
    lengths: str = typer.Option("", help="Start from these lengths, separated by commas."),
    varied: list[str] | None = typer.Option(
        None,
        "--with",
        metavar="NAME=VALUES",
        help="Run every row with these values of a decoding parameter, separated by commas; may "
        "be given repeatedly. Without it: threshold=0.999,0.9 and cache=none,window.",
    ),
    dry_run: options.DryRun = False,
    panels: options.Panels = False,
) -> int:
    """Compare policies from several initial lengths, and say which one suits a model.

    One table and one picture: accuracy, cost, and who is deceived by a model that answers more
    briefly on a short canvas. A part can be run at a time; what is there is not run again, and the
    table shows all of it. Policies of --plugin take part.

    [bold]Examples[/bold]

      rho-eos survey lengths --limit 20 --policies fixed,asym,scout --with cache=none --out lengths

      rho-eos survey lengths --model GSAI-ML/LLaDA-8B-Instruct --tasks gsm8k --limit 200 --out llada

      rho-eos survey stress --model terse --lengths 16,64 --with threshold=0.9 --dry-run --out x
    """
    from rho_eos.evals.studies.study import usual_tasks
    from rho_eos.evals.studies.survey import plan_survey, run_survey

    asked = listed(policies), listed(lengths), _values(varied or [])
    plan = plan_survey(name, measured.task_names or usual_tasks(engine.model), *asked)
    study = make_study(engine, measured, [plan], panels)
    return run_study(study, [plan], run_survey, f"{name}.md", dry_run, measured.unsafe_code)


def _values(given: list[str]) -> dict[str, list[str]]:
    found = {}
    for text in given:
        name, _, words = text.partition("=")
        if not listed(words):
            raise UserError(f"--with is {text!r}, but takes NAME=VALUE or NAME=VALUE,VALUE")
        name = name.strip().replace("-", "_")
        if name in ELSEWHERE:
            raise UserError(f"{name} is not given with --with, but with {ELSEWHERE[name]}")
        found[name] = listed(words)
    return found
