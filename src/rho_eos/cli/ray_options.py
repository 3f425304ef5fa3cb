"""The options of commands that can run on Ray."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from rho_eos.base.errors import UserError, needs_extra
from rho_eos.views.announced import load

if TYPE_CHECKING:
    from rho_eos.files.jobs import Executor

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


class RayCommand(TyperCommand):
    """A command whose `--ray` may stand without an address, which typer has no way to say."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        following = [*args[1:], "-"]
        return super().parse_args(
            ctx,
            [
                "--ray=auto" if word == "--ray" and after.startswith("-") else word
                for word, after in zip(args, following, strict=False)
            ],
        )


def open_executor(
    address: str | None, actors: int | None, engine_options: dict[str, Any]
) -> "Executor":
    """Who decodes: the model in this process or, with an address, a pool on a Ray cluster."""
    from rho_eos.files.jobs import Executor

    if address is None:
        if actors is not None:
            raise UserError("--ray-actors goes with --ray")
        return Executor.of(load(engine_options))
    try:
        from rho_eos.cluster.ray_data import open_pool
    except ModuleNotFoundError as error:
        raise needs_extra("--ray", error.name, "ray") from error
    return open_pool(address, actors, engine_options).executor
