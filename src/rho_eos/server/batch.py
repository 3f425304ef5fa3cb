"""OpenAI's batch files: a request of the API on each line in, a response on each line out.

    {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {…}}
    {"id": "batch_req_…", "custom_id": "a", "response": {"status_code": 200, …}, "error": null}

The same requests, checks and answers as over HTTP, without a server. The id of a response is made
from its request and the model, so a file that was begun with others is known and never continued.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from rho_eos.base.errors import UserError
from rho_eos.engine.errors import EngineError
from rho_eos.engine.request import Detail
from rho_eos.files.jsonl import Line, ResultFile
from rho_eos.files.rows import Row, read_rows
from rho_eos.server.errors import ApiError, as_api_error, bad_request
from rho_eos.server.protocol import AnyRequest, request_models
from rho_eos.server.responses import ChatShape, CompletionShape, Shape, whole_answer
from rho_eos.server.service import Service

MARKER = b'{"id": "batch_req_'
KEY = "custom_id"
FIELDS = ("custom_id", "method", "url", "body")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a batch."""

    where: str
    custom_id: str
    url: str
    body: dict[str, Any]

    def response_id(self, model_hash: str) -> str:
        text = json.dumps([self.url, self.body, model_hash], sort_keys=True, ensure_ascii=False)
        return f"batch_req_{blake2b(text.encode(), digest_size=16).hexdigest()}"


def read_entries(path: Path, complain: Callable[[str], None]) -> Iterator[Entry]:
    """Every line that is a request; what is wrong with the others is told."""
    seen: set[str] = set()
    for row in read_rows(path):
        try:
            entry = _entry(row)
            if entry.custom_id in seen:
                raise UserError(f"the custom_id {entry.custom_id!r} was used by an earlier line")
        except UserError as error:
            text = str(error)
            complain(text if text.startswith(row.where) else f"{row.where}: {text}")
            continue
        seen.add(entry.custom_id)
        yield entry


def open_responses(
    path: Path, entries: Iterator[Entry], model_hash: str, overwrite: bool
) -> ResultFile:
    """The responses there are already; those that say that a request failed are made again."""
    results = ResultFile(path, marker=MARKER, key=KEY, overwrite=overwrite)
    try:
        for entry in entries:
            known = entry.custom_id in results.ids
            if known and results.line(entry.custom_id)["id"] != entry.response_id(model_hash):
                raise UserError(
                    f"{path} holds a response to {entry.custom_id!r} that was made from another "
                    "request, or by another model: give another --output, the same input and "
                    "model, or --overwrite"
                )
        results.keep_only(succeeded)
    except BaseException:
        results.close()
        raise
    return results


def succeeded(line: Line) -> bool:
    response = line.get("response")
    return isinstance(response, dict) and response.get("status_code") == 200


class BatchRun:
    """Answers entries with the engine kept full; each response is handed out as it is there."""

    def __init__(self, service: Service, model_hash: str) -> None:
        self.service = service
        self.model_hash = model_hash
        chat, completion = request_models()
        self.endpoints: dict[str, tuple[type[AnyRequest], Shape]] = {
            "/v1/chat/completions": (chat, ChatShape()),
            "/v1/completions": (completion, CompletionShape()),
        }

    async def run(self, entries: Iterator[Entry], done: Callable[[Line], None]) -> None:
        room = asyncio.Semaphore(2 * self.service.llm.config.max_rows)

        async def answer(entry: Entry) -> None:
            try:
                done(await self.response(entry))
            finally:
                room.release()

        try:
            async with self.service.running(), asyncio.TaskGroup() as tasks:
                for entry in entries:
                    await room.acquire()
                    tasks.create_task(answer(entry))
        except BaseExceptionGroup as group:  # the first one ended the others
            raise group.exceptions[0] from None

    async def response(self, entry: Entry) -> Line:
        try:
            status, body = 200, await self._answer(entry)
        except (ApiError, EngineError, RequestValidationError) as error:
            refused = as_api_error(error)
            status, body = refused.status, refused.body
        id = entry.response_id(self.model_hash)
        return {
            "id": id,
            "custom_id": entry.custom_id,
            "response": {"status_code": status, "request_id": id, "body": body},
            "error": None,
        }

    async def _answer(self, entry: Entry) -> dict[str, Any]:
        if entry.url not in self.endpoints:
            known = " or ".join(self.endpoints)
            raise bad_request(f"url is {entry.url!r}, but takes {known}", "url")
        kind, shape = self.endpoints[entry.url]
        try:
            request = kind.model_validate(entry.body)
        except ValidationError as error:
            errors = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
            raise RequestValidationError(errors) from None
        if request.stream:
            raise bad_request("stream is not supported in a batch; leave it out", "stream")
        with await self.service.open(shape.id_prefix, request, Detail.OUTPUT) as generation:
            await generation.finish()
        return await whole_answer(shape, generation, self.service.llm.engine.detokenize)


def _entry(row: Row) -> Entry:
    line = row.content
    if isinstance(line, UserError):
        raise line
    if not isinstance(line, dict):
        raise UserError("not a JSON object")
    for name in FIELDS:
        if name not in line:
            raise UserError(f"{name} is missing; a line holds {', '.join(FIELDS)}")
    for name, kind, takes in (
        ("custom_id", str, "a text"),
        ("url", str, "a text"),
        ("body", dict, "a JSON object"),
    ):
        if not isinstance(line[name], kind) or not line[name]:
            raise UserError(f"{name} is {line[name]!r}, but takes {takes} that is not empty")
    if line["method"] != "POST":
        raise UserError(f"method is {line['method']!r}, but takes 'POST'")
    return Entry(row.where, line["custom_id"], line["url"], line["body"])
