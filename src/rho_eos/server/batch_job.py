"""OpenAI's batch files: a request of the API on each line in, a response on each line out.

    {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {…}}
    {"id": "batch_req_…", "custom_id": "a", "response": {"status_code": 200, …}, "error": null}

The same requests, checks and answers as over HTTP, without a server. The id of a response is made
from its request and the model, so a file that was begun with others is known and never continued.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from hashlib import blake2b
from itertools import islice
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from rho_eos.base.errors import UserError
from rho_eos.engine.errors import EngineError
from rho_eos.engine.request import Detail
from rho_eos.files.file_job import Answer, FileJob
from rho_eos.files.jobs import Answers, Item
from rho_eos.files.jsonl import Line, ResultFile
from rho_eos.files.rows import FileRow
from rho_eos.server.errors import ApiError, as_api_error, bad_request
from rho_eos.server.protocol import AnyRequest, request_models
from rho_eos.server.responses import CHAT, COMPLETION, Shape, whole_answer
from rho_eos.server.service import Service

FIELDS = {"custom_id": "a text", "method": "'POST'", "url": "a text", "body": "a JSON object"}
OK = 200


class BatchJob(FileJob):
    """A batch file; `open_service` loads the model that answers it."""

    marker = b'{"id": "batch_req_'
    key = "custom_id"

    def __init__(self, open_service: Callable[[], Service], model_hash: str) -> None:
        self.open_service = open_service
        self.model_hash = model_hash
        chat, completion = request_models()
        self.endpoints: dict[str, tuple[type[AnyRequest], Shape]] = {
            "/v1/chat/completions": (chat, CHAT),
            "/v1/completions": (completion, COMPLETION),
        }

    def read(self, row: FileRow) -> list[Item]:
        line = row.content
        for name, takes in FIELDS.items():
            if name not in line:
                raise UserError(f"{name} is missing; a line holds {', '.join(FIELDS)}")
            kind = dict if name == "body" else str
            if not isinstance(line[name], kind) or not line[name]:
                raise UserError(f"{name} is {line[name]!r}, but takes {takes} that is not empty")
        if line["method"] != "POST":
            raise UserError(f"method is {line['method']!r}, but takes 'POST'")
        ask = {"url": line["url"], "body": line["body"]}
        return [Item(id=line["custom_id"], ask=ask, where=row.where)]

    def difference(self, item: Item, line: Line) -> str:
        if line["id"] == self._response_id(item):
            return ""
        return "that was made from another request, or by another model"

    def open(self, results: ResultFile, _until_the_end: ExitStack) -> Answer:
        results.keep_only(self.succeeded)  # what failed is tried again
        return partial(self._answers, self.open_service())

    def line(self, item: Item, answer: tuple[int, Line]) -> Line:
        id, (status, body) = self._response_id(item), answer
        response = {"status_code": status, "request_id": id, "body": body}
        return {"id": id, "custom_id": item.id, "response": response, "error": None}

    def succeeded(self, line: Line) -> bool:
        response = line.get("response")
        return isinstance(response, dict) and response.get("status_code") == OK

    def _response_id(self, item: Item) -> str:
        made_from = [item.ask["url"], item.ask["body"], self.model_hash]
        text = json.dumps(made_from, sort_keys=True, ensure_ascii=False)
        return f"batch_req_{blake2b(text.encode(), digest_size=16).hexdigest()}"

    def _answers(self, service: Service, items: Iterator[Item]) -> Answers:
        """Answers as they finish; as many requests are in flight as keep the engine full."""
        room = 2 * service.llm.config.max_rows
        waiting: dict[asyncio.Task[tuple[int, Line]], str] = {}
        with asyncio.Runner() as runner:
            running = service.running()
            runner.run(running.__aenter__())
            try:
                while True:
                    for item in islice(items, room - len(waiting)):
                        answer = self._answer(service, item)
                        waiting[runner.get_loop().create_task(answer)] = item.id
                    if not waiting:
                        return
                    first = asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                    for task in runner.run(first)[0]:
                        yield waiting.pop(task), task.result()
            finally:
                for task in waiting:
                    task.cancel()
                if waiting:
                    runner.run(asyncio.wait(waiting))
                runner.run(running.__aexit__(None, None, None))

    async def _answer(self, service: Service, item: Item) -> tuple[int, Line]:
        """Status and body, as over HTTP."""
        try:
            return OK, await self._body(service, **item.ask)
        except (ApiError, EngineError, RequestValidationError) as error:
            refused = as_api_error(error)
            return refused.status, refused.body

    async def _body(self, service: Service, url: str, body: dict[str, Any]) -> Line:
        if url not in self.endpoints:
            raise bad_request(f"url is {url!r}, but takes {' or '.join(self.endpoints)}", "url")
        kind, shape = self.endpoints[url]
        try:
            request = kind.model_validate(body)
        except ValidationError as error:
            errors = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
            raise RequestValidationError(errors) from None
        if request.stream:
            raise bad_request("stream is not supported in a batch; leave it out", "stream")
        with await service.open(shape.id_prefix, request, Detail.OUTPUT) as generation:
            await generation.finish()
        answer = await whole_answer(shape, generation, service.llm.engine.detokenize)
        return request.answered(answer)
