"""`rho-eos serve`: the model behind an OpenAI-compatible HTTP server."""

import typer

from rho_eos.base.errors import UserError, needs_extra
from rho_eos.cli.options import Model
from rho_eos.cli.running import load, options_of
from rho_eos.config import EngineConfig
from rho_eos.server.config import ServerConfig


def serve(
    engine: EngineConfig,
    config: ServerConfig,
    name: Model = None,
    ray: bool = typer.Option(
        False, "--ray", help="Serve as a Ray Serve deployment, with replicas."
    ),
    replicas: int = typer.Option(1, help="With --ray: processes that hold a model."),
) -> int:
    """Serve the model over HTTP, with OpenAI's API and a playground at /.

    [bold]Examples[/bold]

      rho-eos serve tiny --port 8000

      rho-eos serve GSAI-ML/LLaDA-8B-Instruct --ray --replicas 4
    """
    if name is not None:
        engine = engine.replaced(model=name)
    config.keys()  # a file of keys that cannot be read is an error before anything is loaded
    if replicas != 1 and not ray:
        raise UserError("--replicas goes with --ray")
    try:
        from rho_eos.server.run import log_to_stderr, serve_forever
        from rho_eos.server.service import Service

        if ray:
            from rho_eos.cluster.ray_serve import serve_on_ray
            from rho_eos.models.loading import open_checkpoint
    except ModuleNotFoundError as error:
        raise needs_extra("serve", error.name, "serve,ray" if ray else "serve") from error
    if ray:
        open_checkpoint(engine)  # a model that cannot be loaded would fail in each replica
        log_to_stderr(config.log_level)
        serve_on_ray(options_of(engine), config, replicas)
        return 0
    llm = load(engine)
    llm.warm_up()
    serve_forever(Service(llm, config))
    return 0
