"""Many requests: from a file, through an engine that is kept fed, to a file."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from rho_eos.decoding.params import DecodeParams, merged
from rho_eos.engine.engine import Engine
from rho_eos.engine.request import Handle, Request
from rho_eos.errors import UserError
from rho_eos.infilling import Given, default_policy
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
) -> Iterator[Request]:
    """The requests of a file that are not done yet. A line's own parameters beat `defaults`."""
    seen: set[str] = set()
    for number, line in read_lines(path):
        where = f"{path}:{number}"
        if isinstance(line, UserError):
            complain(str(line))
            continue
        try:
            id = str(line.pop("id", number))
            if id in seen:
                raise UserError(f"the id {id!r} was used by an earlier line")
            seen.add(id)
            if id in skip:
                continue
            prompt = {key: line.pop(key) for key in PROMPT_KEYS if key in line}
            suffix, template = _around(line)
            given = merged(defaults, line)
            if suffix is not None or template is not None:
                given = default_policy(given, preparer.checkpoint.special)
            params = DecodeParams.from_mapping(given)
            request = preparer.prepare(
                prompt if prompt or template is None else None,
                params,
                id=id,
                raw=raw,
                suffix=suffix,
                template=template,
            )
        except UserError as error:
            complain(f"{where}: {error}")
            continue
        yield request


def _around(line: dict[str, Any]) -> tuple[Given | None, Given | None]:
    """Take suffix and template out of a line; null means "not given"."""
    text, ids, template = (
        line.pop(key, None) for key in ("suffix", "suffix_token_ids", "template")
    )
    if text is not None and ids is not None:
        raise UserError("suffix and suffix_token_ids do not go together")
    if text is not None and not isinstance(text, str):
        raise UserError("suffix takes a text; token ids go into suffix_token_ids")
    return (ids if text is None else text or None), template


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
) -> None:
    """Write each output the moment it is finished. A failed one is reported; it can run again."""
    for output in outputs:
        if output.finish_reason is FinishReason.ERROR:
            complain(f"request {output.id}: {output.error}")
            continue
        results.append(output.as_dict())
        done(output)
