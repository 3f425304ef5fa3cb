"""Options that several commands have, and how all of them are shown."""

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import Field
from typer.core import TyperCommand

from rho_eos.base.settings import Texts, setting
from rho_eos.evals.task import Selection

Raw = Annotated[bool, typer.Option("--raw", help="Do not apply the chat template.")]
Suffix = Annotated[
    str | None,
    typer.Option(help="Fill the gap between the prompt, taken as it is, and this text."),
]
Model = Annotated[
    str | None,
    typer.Argument(
        metavar="[MODEL]",
        help="An embedded model (tiny, terse, tiny-blocks), a folder or a Hub id.",
    ),
]

# Of commands that answer a file of requests.
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="With --output: forget what the file holds.")
]
InOrder = Annotated[
    bool,
    typer.Option(
        "--in-order", help="With --output: once all is done, put it in the order of the input."
    ),
]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list what would be run.")]
Panels = Annotated[
    bool, typer.Option("--panels", help="Also write each panel of a figure into a file of its own.")
]

# Of commands that can run on a cluster.
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="[HOST:PORT]",
        help="Run on a Ray cluster: the one at this address; without one, the one that runs here, "
        "or else one that is started for this command.",
    ),
]
RayActors = Annotated[
    int | None,
    typer.Option(
        help="With --ray: processes that hold a model; by default one per GPU, or per machine."
    ),
]


class Measured(Selection):
    """How commands measure a model on tasks."""

    out: str = Field(description="folder for all answers and tables; run again to continue")
    tasks: str = setting(
        "", "names, separated by commas: {tasks}; studies have a default that suits the model"
    )
    data: Texts = setting((), "a benchmark's file, PATH or TASK=PATH; without it, from the Hub")
    unsafe_code: bool = setting(False, "run model-written code unconfined if need be")

    @property
    def selection(self) -> Selection:
        return Selection(**self.model_dump(include=set(Selection.model_fields)))

    @property
    def folder(self) -> Path:
        return Path(self.out)

    @property
    def task_names(self) -> list[str]:
        return listed(self.tasks)


def listed(text: str) -> list[str]:
    """The names of an option that takes several, separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


HELP_ALL = "--help-all"


class Command(TyperCommand):
    """A command whose `--ray` may stand without an address, which typer has no way to say, and
    whose help is short, with `--help-all` for the whole, and leaves its width to the sentences."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        params: list[Any] = self.params
        more = [parameter for parameter in params if getattr(parameter, "hidden", False)]
        if HELP_ALL in args or ctx.resilient_parsing:  # as a shell does that completes options
            args = ["--help"] if HELP_ALL in args else args
            for parameter in more:
                parameter.hidden = False
        elif more:
            self.epilog = f"{len(more)} more options are shown by {ctx.command_path} {HELP_ALL}."
        optional = any(each.name == "ray" and not each.is_flag for each in params)
        following = [*args[1:], "-"]
        words = [
            "--ray=auto" if optional and word == "--ray" and after.startswith("-") else word
            for word, after in zip(args, following, strict=False)
        ]
        return super().parse_args(ctx, words)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        params: list[Any] = self.params
        for parameter in params:
            parameter.secondary_opts = []  # a column of --no-…, which the sentences mention
            if "{tasks}" in (getattr(parameter, "help", None) or ""):
                from rho_eos.evals import task_names

                parameter.help = parameter.help.format(tasks=", ".join(task_names()))
        super().format_help(ctx, formatter)
