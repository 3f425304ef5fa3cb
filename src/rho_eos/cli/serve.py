"""`rho-eos serve`: the model behind an OpenAI-compatible HTTP server."""

from typing import Any

import typer

from rho_eos.base.errors import UserError, needs_extra
from rho_eos.cli.options import Model
from rho_eos.cli.running import opened
from rho_eos.views.announced import load


def serve(
    engine_options: dict[str, Any],
    server_options: dict[str, Any],
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
    from rho_eos.config import EngineConfig
    from rho_eos.server.config import ServerConfig

    if name is not None:
        engine_options = engine_options | {"model": name}
    # Wrong options are refused before anything is loaded.
    EngineConfig.from_mapping(engine_options)
    config = ServerConfig.from_mapping(server_options)
    config.keys()
    if replicas != 1 and not ray:
        raise UserError("--replicas goes with --ray")
    try:
        from rho_eos.server.run import log_to_stderr, serve_forever
        from rho_eos.server.service import Service

        if ray:
            from rho_eos.cluster.ray_serve import serve_on_ray
    except ModuleNotFoundError as error:
        raise needs_extra("serve", error.name, "serve,ray" if ray else "serve") from error
    if ray:
        opened(engine_options)  # a model that cannot be loaded would fail in each replica
        log_to_stderr(config.log_level)
        serve_on_ray(engine_options, config, replicas)
        return 0
    llm = load(engine_options)
    llm.warm_up()
    serve_forever(Service(llm, config))
    return 0
