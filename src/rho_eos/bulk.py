"""Many requests from a file to a file: bad lines are reported, finished ids are not done again."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rho_eos.config import DecodeParams
from rho_eos.errors import UserError
from rho_eos.jsonl import ResultFile, read_lines
from rho_eos.llm import LLM
from rho_eos.outputs import Output
from rho_eos.preparation import Preparer

PROMPT_KEYS = ("prompt", "messages", "prompt_token_ids")


@dataclass(frozen=True, slots=True)
class Request:
    id: str
    prompt: list[int]
    params: DecodeParams


def read_requests(
    path: Path,
    preparer: LLM | Preparer,
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
            params = DecodeParams.from_mapping({**defaults, **line})
            ids, checked = preparer.prepare(prompt, params, raw)
        except UserError as error:
            complain(f"{where}: {error}")
            continue
        yield Request(id, ids, checked)


def decode_all(llm: LLM, requests: Iterator[Request]) -> Iterator[Output]:
    """Keep the engine fed; outputs come as they finish. Leaving early cancels what is in flight."""
    engine = llm.engine
    backlog = 2 * llm.config.max_rows
    added: set[str] = set()
    try:
        while True:
            for request in islice(requests, backlog - len(engine.sequences)):
                engine.add(request.id, request.prompt, request.params)
                added.add(request.id)
            if not engine.has_work:
                return
            yield from (event.output for event in engine.step() if event.output is not None)
    finally:
        for id in added:
            engine.cancel(id)


def run_bulk(
    outputs: Iterator[Output], results: ResultFile, done: Callable[[Output], None]
) -> None:
    """Write each output the moment it is finished."""
    for output in outputs:
        results.append(output.as_dict())
        done(output)
