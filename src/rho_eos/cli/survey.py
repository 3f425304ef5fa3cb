"""`rho-eos survey`: all ways to choose a length, side by side on one model."""

from typing import Annotated, Any

import typer

from rho_eos.base.errors import UserError
from rho_eos.cli.eval_options import BatchSize, Data, Limit, Repeats, ShuffleSeed, UnsafeCode
from rho_eos.cli.study import DryRun, Out, Skip, Tasks, listed, run_study

ELSEWHERE = {"policy": "--policies", "initial_length": "--lengths"}


def survey(
    engine_options: dict[str, Any],
    name: Annotated[
        str,
        typer.Argument(
            help="lengths; or stress, for a model that may compress its answers",
            show_default=False,
        ),
    ],
    out: Out,
    tasks: Tasks = "",
    limit: Limit = None,
    skip: Skip = 0,
    repeats: Repeats = 1,
    shuffle_seed: ShuffleSeed = None,
    batch_size: BatchSize = None,
    data: Data = None,
    unsafe_code: UnsafeCode = False,
    policies: Annotated[
        str, typer.Option(help="Run only these, separated by commas: fixed, asym, scout, …")
    ] = "",
    lengths: Annotated[
        str, typer.Option(help="Start from these lengths, separated by commas.")
    ] = "",
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="NAME=VALUES",
            help="Run every row with these values of a decoding parameter, separated by commas; "
            "may be given repeatedly. Without it: threshold=0.999,0.9 and cache=none,window.",
        ),
    ] = None,
    dry_run: DryRun = False,
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
    from rho_eos.config import EngineConfig
    from rho_eos.evals.runs.evaluation import find_data
    from rho_eos.evals.studies.study import Study, usual_tasks
    from rho_eos.evals.studies.survey import plan_survey, run_survey

    if batch_size is not None:
        engine_options["max_rows"] = batch_size
    config = EngineConfig.from_mapping(engine_options)
    asked = listed(policies), listed(lengths), _values(values or [])
    plan = plan_survey(name, listed(tasks) or usual_tasks(config.model), *asked)
    study = Study(
        config=config,
        folder=out,
        limit=limit,
        skip=skip,
        repeats=repeats,
        shuffle_seed=shuffle_seed,
        data=find_data(plan.tasks, data or []),
    )

    def run(open_model: Any, watch: Any) -> Any:
        return [run_survey(study, plan, open_model, watch, unsafe_code)]

    return run_study(study, [plan], engine_options, run, out / f"{name}.md", dry_run)


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
