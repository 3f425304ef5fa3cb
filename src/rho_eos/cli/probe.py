"""`rho-eos probe`: what a model says of the length of its texts, and whether it is true."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rho_eos.base.errors import UserError
from rho_eos.cli.options import Model
from rho_eos.cli.running import CONTINUE, load, progress_bars
from rho_eos.config import EngineConfig
from rho_eos.evals.probing.settings import Probe

if TYPE_CHECKING:
    from rho_eos.evals.probing.measure import Question


def probe(
    engine: EngineConfig,
    asked: Probe,
    name: Model = None,
    out: Path = typer.Option(..., help="Folder for the page and the numbers."),
    data: list[str] | None = typer.Option(None, help="A benchmark's file, PATH or TASK=PATH."),
    against: str | None = typer.Option(
        None, help="Compare with another way to compute: dtype=float32, or device=cpu."
    ),
) -> int:
    """Measure what a model's first forward says of the length of its text: one page, worth posting.

    It looks at empty canvases of several lengths and writes each text once. Run it again to go on
    where it was interrupted.

    [bold]Examples[/bold]

      rho-eos probe GSAI-ML/LLaDA-8B-Instruct --out probe

      rho-eos probe GSAI-ML/LLaDA-8B-Instruct --tasks gsm8k --limit 50 --out probe-gsm8k

      rho-eos probe terse --out probe-terse
    """
    from rich.console import Console

    from rho_eos.evals.probing.measure import Prober, questions
    from rho_eos.evals.probing.report import begin, write
    from rho_eos.evals.runs.evaluation import find_data
    from rho_eos.evals.runs.run_folder import open_run
    from rho_eos.models.known import EMBEDDED
    from rho_problems import TASKS

    config = engine if name is None else engine.replaced(model=name)
    if config.model in EMBEDDED and not asked.tasks and asked.prompts is None:
        asked = asked.replaced(tasks=tuple(TASKS))
    other = None if against is None else config.replaced(**_one(against))
    wanted = questions(asked, find_data(asked.tasks, tuple(data or ())))
    console = Console(stderr=True, highlight=False)
    with open_run(out, begin(config, asked)) as run:
        missing = [each for each in wanted if each.id not in run.ids]
        llm = load(config)
        prober = Prober(llm, asked)
        prober.check()
        try:
            with progress_bars(console) as bars:
                bar = bars.add_task("prompts", total=len(wanted), completed=len(run.ids), note="")
                for question in missing:
                    run.append(prober.measure(question))
                    bars.advance(bar)
        except KeyboardInterrupt:
            console.print(f"rho-eos: interrupted; {CONTINUE}")
            return 130
        drift = None if other is None else _drift(prober, other, wanted[:4])
        for sentence in write(out, config, asked, llm, run.lines, drift, against or ""):
            print(sentence)
    print(f"\n{out / 'probe.html'}")
    return 0


def _one(given: str) -> dict[str, str]:
    key, _, value = given.partition("=")
    if key not in ("dtype", "device", "quantization") or not value:
        raise UserError.of("against", given, "dtype=…, device=… or quantization=…")
    return {key: value}


def _drift(ours: object, other: EngineConfig, wanted: "list[Question]") -> float:
    """The largest difference of F between two ways to compute, on a few prompts."""
    from rho_eos.evals.probing.measure import Prober

    assert isinstance(ours, Prober)
    theirs = Prober(load(other), ours.probe)
    return max(float(abs(ours.curve(each) - theirs.curve(each)).max()) for each in wanted)
