"""`rho-eos serve`: the model behind an OpenAI-compatible HTTP server."""

from typing import Any

from rho_eos.errors import UserError


def serve(engine_options: dict[str, Any], server_options: dict[str, Any]) -> int:
    """Serve the model over HTTP, with OpenAI's API and a playground at /.

    [bold]Examples[/bold]

      rho-eos serve --model tiny --port 8000

      curl localhost:8000/v1/chat/completions -H 'content-type: application/json' \\
        -d '{"model": "tiny", "messages": [{"role": "user", "content": "What is 3 + 4?"}]}'
    """
    from rho_eos.server.config import ServerConfig

    config = ServerConfig.from_mapping(server_options)
    config.keys()  # a key file that cannot be read is an error before the model is loaded
    try:
        from rho_eos.server.run import serve_forever
        from rho_eos.server.service import Service
    except ModuleNotFoundError as error:
        raise UserError(
            f"serving needs {error.name}: install it with pip install 'rho-eos[serve]'"
        ) from error
    from rho_eos.llm import LLM

    serve_forever(Service(LLM(**engine_options), config))
    return 0
