"""`rho-eos generate`: one prompt from the command line or stdin, or many from a file."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from rho_eos.announced import load
from rho_eos.cli.ray_options import RayActors, RayAddress
from rho_eos.errors import UserError


def generate(
    engine_options: dict[str, Any],
    decode_options: dict[str, Any],
    prompt: Annotated[
        str | None, typer.Argument(help="The prompt; read from stdin if it is not given.")
    ] = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print one JSON object with text, tokens and metrics.")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Do not apply the chat template.")] = False,
    n: Annotated[
        int, typer.Option("--n", "-n", help="Samples of each prompt; the i-th has seed + i.")
    ] = 1,
    commits: Annotated[
        bool,
        typer.Option(
            "--commits", help="In JSON, also the step and the probability of each token's commit."
        ),
    ] = False,
    input_file: Annotated[
        Path | None,
        typer.Option(
            "--input",
            "-i",
            help="Many prompts: JSON lines with prompt, messages or prompt_token_ids, optionally "
            "id, n and any decoding parameter.",
        ),
    ] = None,
    output_file: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Where results go, line by line. Run again to continue."
        ),
    ] = None,
    trace_file: Annotated[
        Path | None, typer.Option(help="Write every denoising step to this file, as JSON lines.")
    ] = None,
    ray: RayAddress = None,
    ray_actors: RayActors = None,
) -> int:
    """Generate text for one prompt, or for every line of a file.

    [bold]Examples[/bold]

      rho-eos generate "Mia has 8 plums. 1) buys 6. 2) eats 5. How many are there now?"

      rho-eos generate --policy fixed --initial-length 128 --json < prompt.txt

      rho-eos generate --input prompts.jsonl --output out.jsonl --preset sym

      rho-eos generate --input prompts.jsonl --output out.jsonl -n 8 --temperature 1 --commits

      rho-eos generate --input prompts.jsonl --output out.jsonl --ray --ray-actors 4
    """
    if (input_file is None) != (output_file is None):
        raise UserError("--input and --output go together")
    if input_file is not None and output_file is not None:
        if prompt is not None:
            raise UserError("give either a prompt or --input, not both")
        return _generate_file(
            engine_options,
            decode_options,
            raw,
            n,
            commits,
            input_file,
            output_file,
            ray,
            ray_actors,
        )
    if ray is not None:
        raise UserError("--ray goes with --input")
    if commits and not json_output:
        raise UserError("--commits goes with --json or --input")
    text = prompt if prompt is not None else _from_stdin()
    from rho_eos.decoding.params import DecodeParams, seeded
    from rho_eos.trace import write_trace

    if trace_file is not None:
        decode_options["trace"] = True
    params = DecodeParams.from_mapping(decode_options)
    samples = seeded(params, n)
    outputs = load(engine_options).generate([text] * n, samples, raw=raw)
    if trace_file is not None:
        write_trace(trace_file, outputs)
    for own, output in zip(samples, outputs, strict=True):
        if json_output:
            print(json.dumps(output.as_dict(commits), ensure_ascii=False))
        elif n == 1:
            print(output.text)
        else:
            print(f"--- seed {own.seed}\n{output.text}")
    return 0


def _from_stdin() -> str:
    if sys.stdin.isatty():
        raise UserError("give a prompt as an argument, on stdin, or in a file with --input")
    return sys.stdin.read()


def _generate_file(
    engine_options: dict[str, Any],
    decode_options: dict[str, Any],
    raw: bool,
    n: int,
    commits: bool,
    input_file: Path,
    output_file: Path,
    ray: str | None,
    ray_actors: int | None,
) -> int:
    """Exit code 2 if any line was bad; the good ones have run all the same."""
    from rich.console import Console

    from rho_eos.bulk import decode_all, read_requests, samples_in, write_outputs
    from rho_eos.cli.progress import bulk_progress
    from rho_eos.cli.ray_options import pool_of
    from rho_eos.config import EngineConfig
    from rho_eos.decoding.params import DecodeParams, check_samples
    from rho_eos.engine.request import Request
    from rho_eos.jsonl import ResultFile
    from rho_eos.models.loading import open_checkpoint
    from rho_eos.outputs import Output
    from rho_eos.preparation import Preparer

    console = Console(stderr=True)
    DecodeParams.from_mapping(decode_options)  # a bad option is an error before any line is read
    check_samples(n)
    total = samples_in(input_file, n)
    pool = pool_of(ray, ray_actors, engine_options)
    decode: Callable[[Iterator[Request]], Iterator[Output]]
    if pool is None:
        llm = load(engine_options)
        preparer = llm.preparer
        decode = partial(decode_all, llm.engine)
    else:
        config = EngineConfig.from_mapping(engine_options)
        preparer = Preparer(open_checkpoint(config), config)
        decode = pool.decode
    complaints: list[str] = []
    tokens, started = 0, time.perf_counter()
    with ResultFile(output_file) as results, bulk_progress(console, total) as progress:

        def complain(message: str) -> None:
            complaints.append(message)
            console.print(f"rho-eos: {message}", markup=False, highlight=False, soft_wrap=True)
            progress.advance()

        def done(output: Output) -> None:
            nonlocal tokens
            tokens += len(output.token_ids)
            progress.advance(tokens / (time.perf_counter() - started))

        before = len(results.ids)
        progress.advance(by=before)
        requests = read_requests(
            input_file, preparer, decode_options, raw, set(results.ids), complain, n
        )
        try:
            write_outputs(decode(requests), results, done, complain, commits)
        except KeyboardInterrupt:
            console.print(
                f"rho-eos: interrupted with {len(results.ids)} of {total} done; "
                "run the same command again to continue"
            )
            return 130
        made = len(results.ids) - before
    skipped = f", {before} were there already" if before else ""
    bad = f", {len(complaints)} bad" if complaints else ""
    console.print(f"{made} generated{skipped}{bad} → {output_file}", highlight=False)
    return 2 if complaints else 0
