"""Many requests: from a file, through an engine that is kept fed, to a file."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from rho_eos.decoding.params import DecodeParams, check_samples, merged, seeded
from rho_eos.engine.engine import Engine
from rho_eos.engine.request import Handle, Request
from rho_eos.errors import UserError
from rho_eos.jsonl import ResultFile, read_lines
from rho_eos.outputs import FinishReason, Output
from rho_eos.preparation import Preparer

PROMPT_KEYS = ("prompt", "messages", "prompt_token_ids")


def read_requests(
    path: Path,
    preparer: Preparer,
    defaults: Mapping[str, Any],
    raw: bool,
    skip: set[str],
    complain: Callable[[str], None],
    n: int = 1,
) -> Iterator[Request]:
    """The requests of a file that are not done yet. A line's own parameters beat `defaults`.

    A line that asks for `n` samples is as many requests, with #0, #1, … behind its id.
    """
    seen: set[str] = set()
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        if isinstance(line, UserError):
            complain(str(line))
            continue
        try:
            id, count = str(line.pop("id", number)), line.pop("n", n)
            check_samples(count)
            ids = sample_ids(id, count)
            if not seen.isdisjoint(ids):
                raise UserError(f"the id {id!r} was used by an earlier line")
            seen.update(ids)
            if skip.issuperset(ids):
                continue
            prompt = {key: line.pop(key) for key in PROMPT_KEYS if key in line}
            each = seeded(DecodeParams.from_mapping(merged(defaults, line)), count)
            requests = [
                preparer.prepare(prompt, own, id=own_id, raw=raw)
                for own_id, own in zip(ids, each, strict=True)
                if own_id not in skip
            ]
        except UserError as error:
            complain(f"{where}: {error}")
            continue
        yield from requests


def sample_ids(id: str, n: int) -> list[str]:
    """The ids of n samples of one request; a single one goes by the request's own."""
    return [id] if n == 1 else [f"{id}#{sample}" for sample in range(n)]


def samples_in(path: Path, n: int) -> int:
    """How many samples a file asks for; a line that is no request counts as one."""
    asked = (1 if isinstance(line, UserError) else line.get("n", n) for _, line in read_lines(path))
    return sum(count if type(count) is int else 1 for count in asked)


def decode_all(engine: Engine, requests: Iterator[Request]) -> Iterator[Output]:
    """Keep the engine fed; outputs come as they finish, those that failed among them.

    Leaving early cancels what is in flight.
    """
    backlog = 2 * engine.scheduler.max_rows
    running: list[Handle] = []
    try:
        while True:
            running += [
                engine.submit(request) for request in islice(requests, backlog - len(running))
            ]
            if not running:
                return
            engine.step()
            done = [handle for handle in running if handle.done]
            running = [handle for handle in running if not handle.done]
            for handle in done:
                assert handle.output is not None
                yield handle.output
    finally:
        for handle in running:
            engine.cancel(handle)


def write_outputs(
    outputs: Iterator[Output],
    results: ResultFile,
    done: Callable[[Output], None],
    complain: Callable[[str], None],
    commits: bool = False,
) -> None:
    """Write each output the moment it is finished. A failed one is reported; it can run again."""
    for output in outputs:
        if output.finish_reason is FinishReason.ERROR:
            complain(f"request {output.id}: {output.error}")
            continue
        results.append(output.as_dict(commits))
        done(output)
