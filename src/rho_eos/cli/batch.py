"""`rho-eos batch`: a file in OpenAI's batch format, answered without a server."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from rho_eos.base.errors import needs_extra
from rho_eos.cli.file_options import InOrder, Overwrite, check_distinct
from rho_eos.views.announced import load


def batch(
    engine_options: dict[str, Any],
    input_file: Annotated[
        Path,
        typer.Option(
            "--input", "-i", help="JSON Lines with custom_id, method, url and body on each line."
        ),
    ],
    output_file: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="Where responses go, line by line. Run again to continue."
        ),
    ],
    served_model_name: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The model's name in the requests, if not its own."),
    ] = None,
    overwrite: Overwrite = False,
    in_order: InOrder = False,
) -> int:
    """Answer a batch file of OpenAI's: requests of the API in, responses out.

    A request that is refused or fails gets a response that says so, as over HTTP; a line that is no
    request is named on stderr. Either way the others go on and the exit code is 2.

    [bold]Examples[/bold]

      rho-eos batch --input requests.jsonl --output responses.jsonl --model tiny
    """
    from rich.console import Console

    from rho_eos.base.plugins import load_plugins
    from rho_eos.cli.progress import bulk_progress
    from rho_eos.config import EngineConfig
    from rho_eos.evals.runs.provenance import model_hash
    from rho_eos.files.rows import read_rows
    from rho_eos.server.config import MONTH, ServerConfig

    try:
        from rho_eos.server.batch import BatchRun, open_responses, read_entries, succeeded
        from rho_eos.server.service import Service
    except ModuleNotFoundError as error:
        raise needs_extra("batch", error.name, "serve") from error

    check_distinct({"--input": input_file, "--output": output_file})
    engine = EngineConfig.from_mapping(engine_options)
    load_plugins(engine.plugin)
    # Nobody waits for a batch, and what is in flight is bounded by who reads the file.
    config = ServerConfig(
        served_model_name=served_model_name, max_waiting=10**6, deadline_seconds=MONTH
    )
    console = Console(stderr=True)
    total = sum(1 for _ in read_rows(input_file))
    hash = model_hash(engine)
    entries = read_entries(input_file, lambda _: None)
    with open_responses(output_file, entries, hash, overwrite) as results:
        run = BatchRun(Service(load(engine_options), config), hash)
        bad, failed, before = 0, 0, len(results.ids)
        with bulk_progress(console, total) as progress:
            progress.advance(by=before)

            def complain(message: str) -> None:
                nonlocal bad
                bad += 1
                console.print(f"rho-eos: {message}", markup=False, highlight=False, soft_wrap=True)
                progress.advance()

            def done(line: dict[str, Any]) -> None:
                nonlocal failed
                failed += not succeeded(line)
                results.append(line)
                progress.advance()

            had = set(results.ids)
            fresh = (e for e in read_entries(input_file, complain) if e.custom_id not in had)
            try:
                asyncio.run(run.run(fresh, done))
            except KeyboardInterrupt:
                console.print(
                    f"rho-eos: interrupted with {len(results.ids)} of {total} done; "
                    "run the same command again to continue"
                )
                return 130
        answered = len(results.ids) - before - failed
        if in_order:
            results.put_in_order(e.custom_id for e in read_entries(input_file, lambda _: None))
    counts = {"were there already": before, "failed": failed, "bad": bad}
    more = "".join(f", {count} {what}" for what, count in counts.items() if count)
    console.print(f"{answered} answered{more} → {output_file}", highlight=False)
    return 2 if bad or failed else 0
