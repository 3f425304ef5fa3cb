"""Everything that can go wrong with a request, as the error object that OpenAI's clients read."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from rho_eos.base.errors import UserError, did_you_mean
from rho_eos.decoding.schema import parameters
from rho_eos.engine.errors import (
    DeadlineExceededError,
    EngineError,
    QueueFullError,
    RequestFailedError,
    UnavailableError,
)
from rho_eos.server.fields import NAMES, UNSUPPORTED

#: Of a field that takes several types, pydantic adds the one that it tried to the field's path.
_TRIED_TYPE = re.compile(r"str|int|float|bool|none|.*\[.*")
#: What HTTP calls the forms of an answer.
FORMS = {"schema": "response_format", "regex": "guided_regex", "choices": "guided_choice"}
_LONGEST_MESSAGE = 1000
_CHAT = "use /v1/chat/completions, which takes the same text as messages"
#: Endpoints that clients of other servers look for, and what there is in their place.
NOT_SERVED = {
    "/responses": _CHAT,
    "/messages": _CHAT,
    "/api/chat": _CHAT,
    "/api/generate": _CHAT,
    "/embeddings": "a diffusion model that writes text gives none",
    "/tokenize": "the usage of an answer counts the tokens of its prompt, and max_model_len of "
    "/v1/models is what fits; in Python it is llm.tokenizer.encode",
    "/detokenize": "in Python it is llm.tokenizer.decode",
}
_ENGINE_STATUS: dict[type[EngineError], tuple[int, str]] = {
    QueueFullError: (429, "queue_full"),
    RequestFailedError: (500, "request_failed"),
    UnavailableError: (503, "unavailable"),
    DeadlineExceededError: (504, "deadline_exceeded"),
}


@dataclass(eq=False)
class ApiError(Exception):
    """An answer other than 200."""

    status: int
    message: str
    code: str
    param: str | None = None
    headers: Mapping[str, str] | None = None

    def __str__(self) -> str:
        return self.message

    @property
    def body(self) -> dict[str, Any]:
        kinds = {401: "authentication_error", 429: "rate_limit_error"}
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        error = {"message": self.message, "type": kinds.get(self.status, kind)}
        return {"error": error | {"param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        return JSONResponse(self.body, self.status, self.headers)


def bad_request(message: str, param: str | None = None, code: str = "invalid_value") -> ApiError:
    return ApiError(400, message, code, param)


def as_api_error(error: Exception) -> ApiError:
    """The answer to a request that ended with this error."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, EngineError):
        status, code = _ENGINE_STATUS[type(error)]
        headers = {"Retry-After": "1"} if status in (429, 503) else None
        return ApiError(status, str(error), code, headers=headers)
    if isinstance(error, UserError):
        message = str(error).replace("max_new_tokens", "max_tokens")
        cut = len(message) > _LONGEST_MESSAGE
        param = {**NAMES, **FORMS}.get(error.field or "") or error.field
        return bad_request(message[:_LONGEST_MESSAGE] + "…" if cut else message, param)
    if isinstance(error, RequestValidationError):
        return _invalid(error.errors()[0])
    if isinstance(error, HTTPException):
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
        return ApiError(error.status_code, str(error.detail), code, headers=error.headers)
    return ApiError(500, "the server failed; its log says why", "internal_error")


def install(app: FastAPI, refused: Callable[[], None]) -> None:
    """Let every error of every endpoint be answered in the same form.

    Args:
        app: The app whose errors are answered.
        refused: Called for a request that is refused before an endpoint has seen it.
    """

    async def answer(request: Request, error: Exception) -> JSONResponse:
        if isinstance(error, RequestValidationError):
            refused()
        if isinstance(error, HTTPException) and error.status_code == 404:
            return _no_such_path(app, request.url.path).response()
        return as_api_error(error).response()

    for kind in (ApiError, EngineError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, answer)


def _no_such_path(app: FastAPI, path: str) -> ApiError:
    """What to call instead: a path of ours that is like it, or what takes the place of others'."""
    path = _printable(path)
    for others, instead in NOT_SERVED.items():
        if path.rstrip("/").endswith(others):
            return ApiError(404, f"{others} is not served here: {instead}", "not_found")
    known = [str(getattr(route, "path", "")) for route in app.routes]
    ends = [each for each in known if each.endswith(path.rstrip("/")) and path != "/"]
    near = f"; did you mean {ends[0]!r}?" if ends else did_you_mean(path, known)
    listed = ", ".join(each for each in known if each.startswith("/v1/c") or each == "/v1/models")
    return ApiError(404, f"there is no {path!r} here{near or f'; there are {listed}'}", "not_found")


def _invalid(error: dict[str, Any]) -> ApiError:
    """The first complaint of pydantic as a sentence that names the field."""
    kind = error["type"]
    if kind == "json_invalid":
        return bad_request(f"the body is not JSON: {error['ctx']['error']}", code="invalid_json")
    path = [str(part) for part in error["loc"][1:]]
    if kind == "extra_forbidden":
        name = _printable(".".join(path))
        if path[-1] in UNSUPPORTED:
            message = f"{name} is not supported by this server; leave it out"
            return bad_request(message, name, "unsupported")
        known = [NAMES.get(each) or each for each in parameters()]
        near = did_you_mean(NAMES.get(name) or name, known)
        return bad_request(f"unknown field {name!r}{near}", name, "unknown_field")
    name = _printable(".".join(part for part in path if not _TRIED_TYPE.fullmatch(part)))
    message = _printable(error["msg"].removeprefix("Value error, "))
    if not name and kind == "value_error":
        return bad_request(message)
    if not name:
        message = "the body takes a JSON object, sent with content-type application/json"
        return bad_request(message, code="invalid_json")
    if kind == "missing":
        return bad_request(f"{name} is missing", name, "missing_field")
    return bad_request(f"{name}: {message}", name)


def _printable(text: str) -> str:
    """The beginning of what a client sent, without half characters, which no JSON can carry."""
    return text.encode("utf-8", "replace").decode()[:200]
