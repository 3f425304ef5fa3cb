"""`rho-eos generate --input`: every request of a file, answered into another file."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rho_eos.base.errors import UserError
from rho_eos.cli.file_options import check_distinct
from rho_eos.views.announced import load, remark_on

if TYPE_CHECKING:
    from rho_eos.base.tokens import SpecialTokens
    from rho_eos.files.bulk import Item
    from rho_eos.files.jsonl import ResultFile
    from rho_eos.text.ask import Request


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


def _check_defaults(options: dict[str, Any], special: "SpecialTokens") -> None:
    """What is given for all lines must be good for answers or, without a policy, for gaps."""
    from rho_eos.text.ask import Ask
    from rho_eos.text.preparation import decide

    try:
        decide(Ask(params=options), special)
    except UserError:
        with suppress(UserError):
            decide(Ask(params=options, template="___ ___"), special)
            return
        raise


def generate_file(
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
    from rho_eos.evals.runs.provenance import model_hash
    from rho_eos.files.bulk import MARKER, Bulk, Item, decode_all
    from rho_eos.files.jsonl import ResultFile
    from rho_eos.models.loading import open_checkpoint
    from rho_eos.text.ask import Request
    from rho_eos.text.preparation import Preparer

    console = Console(stderr=True)
    check_distinct({"--input": job.input, "--output": job.output, "--trace-file": job.trace})
    if job.trace is not None:
        decode_options = {**decode_options, "trace": True}
    check_samples(job.n)
    config = EngineConfig.from_mapping(engine_options)
    load_plugins(config.plugin)
    special = open_checkpoint(config).special
    _check_defaults(decode_options, special)  # a bad option is an error before any line is read
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
