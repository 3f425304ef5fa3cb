"""`rho-eos serve`: the model behind an OpenAI-compatible HTTP server."""

from typing import Annotated, Any

import typer

from rho_eos.base.errors import UserError, needs_extra
from rho_eos.views.announced import load


def serve(
    engine_options: dict[str, Any],
    server_options: dict[str, Any],
    name: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="tiny, a folder or a Hub id.")
    ] = None,
    ray: Annotated[
        bool, typer.Option("--ray", help="Serve as a Ray Serve deployment, with replicas.")
    ] = False,
    replicas: Annotated[int, typer.Option(help="With --ray: processes that hold a model.")] = 1,
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
    engine = EngineConfig.from_mapping(engine_options)
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
    if not ray:
        llm = load(engine_options)
        llm.warm_up()
        serve_forever(Service(llm, config))
        return 0
    from rho_eos.base.plugins import load_plugins
    from rho_eos.models.loading import open_checkpoint

    # A model that cannot be loaded would fail in each replica, so it is opened here first.
    load_plugins(engine.plugin)
    open_checkpoint(engine)
    log_to_stderr(config.log_level)
    serve_on_ray(engine_options, config, replicas)
    return 0
