"""`rho-eos generate`: one prompt from the command line or stdin, or many from a file."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rho_eos.base.errors import UserError
from rho_eos.cli.file_options import InOrder, Overwrite, check_distinct
from rho_eos.cli.ray_options import RayActors, RayAddress
from rho_eos.views.announced import load, remark_on

if TYPE_CHECKING:
    from rho_eos.engine.request import Request
    from rho_eos.files.bulk import Item
    from rho_eos.files.jsonl import ResultFile


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
    suffix: Annotated[
        str | None,
        typer.Option(help="Fill the gap between the prompt, taken as it is, and this text."),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            help="Fill the gaps of this text: ___, or ___{12} for 12 MASKs. With a prompt, as the "
            "answer to it."
        ),
    ] = None,
    template_file: Annotated[
        Path | None,
        typer.Option(help="The same, with the text in a file; the filled file is printed."),
    ] = None,
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
            help="Many prompts: JSON Lines, CSV or Parquet with prompt, messages or "
            "prompt_token_ids, optionally id, n, suffix, suffix_token_ids, template and any "
            "decoding parameter; or a .txt file with a prompt on each line.",
        ),
    ] = None,
    output_file: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Where results go, line by line. Run again to continue."
        ),
    ] = None,
    overwrite: Overwrite = False,
    in_order: InOrder = False,
    trace_file: Annotated[
        Path | None, typer.Option(help="Write every denoising step to this file, as JSON lines.")
    ] = None,
    ray: RayAddress = None,
    ray_actors: RayActors = None,
) -> int:
    """Generate text for one prompt, or for every line of a file.

    [bold]Examples[/bold]

      rho-eos generate "Mia has 8 plums. 1) buys 6. 2) eats 5. How many are there now?"

      echo "Tom has 9 coins. 1) loses 4. How many are left?" | rho-eos generate --json

      rho-eos generate "def area(r):" --suffix "    return a" --model GSAI-ML/LLaDA-8B-Instruct

      rho-eos generate --template '{"name": "___", "age": ___{2}}' --model GSAI-ML/LLaDA-8B-Instruct

      rho-eos generate --template-file area.py --model GSAI-ML/LLaDA-8B-Instruct > filled.py

      rho-eos generate --input prompts.jsonl --output out.jsonl --preset sym

      rho-eos generate --input prompts.jsonl --output out.jsonl -n 8 --temperature 1 --commits

      rho-eos generate --input prompts.jsonl --output out.jsonl --ray --ray-actors 4
    """
    if template_file is not None:
        if template is not None:
            raise UserError("give either --template or --template-file, not both")
        template = _read(template_file)
    if (input_file is None) != (output_file is None):
        raise UserError("--input and --output go together")
    if input_file is not None and output_file is not None:
        if prompt is not None or suffix is not None or template is not None:
            raise UserError("a prompt, --suffix or --template does not go with --input")
        job = FileJob(input_file, output_file, trace_file, raw, overwrite, in_order, n, commits)
        return _generate_file(engine_options, decode_options, job, ray, ray_actors)
    for given, option in ((ray, "--ray"), (overwrite, "--overwrite"), (in_order, "--in-order")):
        if given:
            raise UserError(f"{option} goes with --input")
    if commits and not json_output:
        raise UserError("--commits goes with --json or --input")
    text = prompt
    if text is None and template is None:
        text = _from_stdin()
    from rho_eos.decoding.params import DecodeParams, seeded
    from rho_eos.files.traces import open_trace, trace_lines
    from rho_eos.text.infilling import default_policy, stands_before_text

    has_gaps = stands_before_text(suffix, template)
    if not has_gaps or "policy" in decode_options:
        DecodeParams.from_mapping(decode_options)  # a bad option, before a model is loaded
    with nullcontext() if trace_file is None else open_trace(trace_file, overwrite=True) as traces:
        llm = load(engine_options)
        if has_gaps:
            decode_options = default_policy(decode_options, llm.special)
        params = DecodeParams.from_mapping(decode_options)
        if trace_file is not None:
            params = params.replaced(trace=True)
        remark_on(llm.config.model, text, beside=suffix or template)
        samples = seeded(params, n)
        outputs = llm.generate([text] * n, samples, raw=raw, suffix=suffix, template=template)
        if traces is not None:
            traces.append(*(line for output in outputs for line in trace_lines(output)))
    for own, output in zip(samples, outputs, strict=True):
        if json_output:
            print(json.dumps(output.as_dict(commits), ensure_ascii=False))
        else:
            text = output.text if n == 1 else f"--- seed {own.seed}\n{output.text}"
            # A file that was filled ends as it did.
            print(text, end="" if template_file is not None and text.endswith("\n") else "\n")
    return 0


def _read(path: Path) -> str:
    """Byte for byte: line ends stay as they are."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"cannot read {path}: it is not UTF-8") from error


def _from_stdin() -> str:
    if sys.stdin.isatty():
        raise UserError("give a prompt as an argument, on stdin, or in a file with --input")
    return sys.stdin.read()


@dataclass(frozen=True, slots=True)
class FileJob:
    """Which files, and how they are treated."""

    input: Path
    output: Path
    trace: Path | None
    raw: bool
    overwrite: bool
    in_order: bool
    n: int
    commits: bool


def _check_defaults(options: dict[str, Any]) -> None:
    """Those of a file's lines: good for answers or, if no policy is named, for gaps."""
    from rho_eos.decoding.params import DecodeParams
    from rho_eos.text.infilling import SEARCH

    try:
        DecodeParams.from_mapping(options)
    except UserError:
        if "policy" in options:
            raise
        with suppress(UserError):
            DecodeParams.from_mapping({**SEARCH, **options})
            return
        raise


def _generate_file(
    engine_options: dict[str, Any],
    decode_options: dict[str, Any],
    job: FileJob,
    ray: str | None,
    ray_actors: int | None,
) -> int:
    """Exit code 2 if any line was bad; the good ones have run all the same."""
    from rich.console import Console

    from rho_eos.base.outputs import Output
    from rho_eos.base.plugins import load_plugins
    from rho_eos.cli.progress import bulk_progress
    from rho_eos.cli.ray_options import pool_of
    from rho_eos.config import EngineConfig
    from rho_eos.decoding.params import check_samples
    from rho_eos.engine.preparation import Preparer
    from rho_eos.engine.request import Request
    from rho_eos.evals.runs.provenance import model_hash
    from rho_eos.files.bulk import MARKER, Bulk, Item, decode_all
    from rho_eos.files.jsonl import ResultFile
    from rho_eos.models.loading import open_checkpoint

    console = Console(stderr=True)
    check_distinct({"--input": job.input, "--output": job.output, "--trace-file": job.trace})
    if job.trace is not None:
        decode_options = {**decode_options, "trace": True}
    _check_defaults(decode_options)  # a bad option is an error before any line is read
    check_samples(job.n)
    config = EngineConfig.from_mapping(engine_options)
    load_plugins(config.plugin)
    special = open_checkpoint(config).special
    bulk = Bulk(
        *(job.input, decode_options, job.raw, model_hash(config), special, job.n, job.commits)
    )
    total = bulk.count()
    complaints: list[str] = []
    with ExitStack() as files:
        results = files.enter_context(
            ResultFile(job.output, marker=MARKER, overwrite=job.overwrite)
        )
        bulk.check_continues(results)
        traces = None
        if job.trace is not None:
            traces = files.enter_context(_open_trace(job.trace, job.overwrite, results))
        # All is known to fit together; only now is a model loaded, and a file changed.
        pool = pool_of(ray, ray_actors, engine_options)
        decode: Callable[[Iterator[Request]], Iterator[Output]]
        if pool is None:
            llm = load(engine_options)
            preparer = llm.preparer
            decode = partial(decode_all, llm.engine)
        else:
            preparer = Preparer(open_checkpoint(config), config)
            decode = pool.decode
        results.repair()
        progress = files.enter_context(bulk_progress(console, total))
        tokens, started = 0, time.perf_counter()

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
        begun: dict[str, Item] = {}
        requests = _remarked(
            config.model, bulk.requests(preparer, set(results.ids), begun, complain), begun
        )
        try:
            bulk.write(decode(requests), begun, results, traces, done, complain)
        except KeyboardInterrupt:
            console.print(
                f"rho-eos: interrupted with {len(results.ids)} of {total} done; "
                "run the same command again to continue"
            )
            return 130
        made = len(results.ids) - before
        if job.in_order:
            results.put_in_order(item.id for item in bulk.items(lambda _: None))
    skipped = f", {before} were there already" if before else ""
    bad = f", {len(complaints)} bad" if complaints else ""
    console.print(f"{made} generated{skipped}{bad} → {job.output}", highlight=False)
    return 2 if complaints else 0


def _remarked(
    model: str, requests: "Iterator[Request]", begun: "dict[str, Item]"
) -> "Iterator[Request]":
    """The same requests. Of the first that the embedded model was never taught, it is said."""
    said: set[str] = set()
    for request in requests:
        item = begun[request.id]
        remark_on(model, item.prompt, said, beside=item.suffix or item.template)
        yield request


def _open_trace(path: Path, overwrite: bool, results: "ResultFile") -> "ResultFile":
    """The traces of what is finished. What was not, will be traced again."""
    from rho_eos.files.traces import open_trace

    traces = open_trace(path, overwrite)
    missing = len(results.ids - traces.ids)
    if missing:
        traces.close()
        raise UserError(
            f"{path} lacks the steps of {missing} outputs that {results.path} holds already: "
            "give another --output, or --overwrite"
        )
    traces.keep_only(lambda line: line["id"] in results.ids)
    return traces
