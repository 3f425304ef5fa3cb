"""`rho-eos batch`: a file in OpenAI's batch format, answered without a server."""

from pathlib import Path

import typer

from rho_eos.base.errors import needs_extra
from rho_eos.cli.options import InOrder, Overwrite
from rho_eos.cli.running import check_distinct, load, run_job
from rho_eos.config import EngineConfig


def batch(
    engine: EngineConfig,
    input_file: Path = typer.Option(
        ..., "--input", "-i", help="JSON Lines with custom_id, method, url and body on each line."
    ),
    output_file: Path = typer.Option(
        ..., "--output", "-o", help="Where responses go, line by line. Run again to continue."
    ),
    served_model_name: str | None = typer.Option(
        None, metavar="TEXT", help="The model's name in the requests, if not its own."
    ),
    overwrite: Overwrite = False,
    in_order: InOrder = False,
) -> int:
    """Answer a batch file of OpenAI's: requests of the API in, responses out.

    A request that is refused or fails gets a response that says so, as over HTTP; a line that is no
    request is named on stderr. Either way the others go on and the exit code is 2.

    [bold]Examples[/bold]

      rho-eos batch --input requests.jsonl --output responses.jsonl --model tiny
    """
    from rho_eos.evals.runs.provenance import model_hash
    from rho_eos.server.config import MONTH, ServerConfig

    try:
        from rho_eos.server.batch_job import BatchJob
        from rho_eos.server.service import Service
    except ModuleNotFoundError as error:
        raise needs_extra("batch", error.name, "serve") from error

    check_distinct({"--input": input_file, "--output": output_file})
    # Nobody waits for a batch, and what is in flight is bounded by who reads the file.
    config = ServerConfig(
        served_model_name=served_model_name, max_waiting=10**6, deadline_seconds=MONTH
    )
    job = BatchJob(lambda: Service(load(engine), config), model_hash(engine))
    return run_job(job, input_file, output_file, overwrite, in_order, verb="answered")
