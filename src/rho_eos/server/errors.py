"""Everything that can go wrong with a request, as the error object that OpenAI's clients expect."""

import re
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from rho_eos.base.errors import UserError
from rho_eos.engine.errors import (
    DeadlineExceededError,
    EngineError,
    QueueFullError,
    RequestFailedError,
    UnavailableError,
)

_TRIED_TYPE = re.compile(r"str|int|float|bool|none|.*\[.*")
#: How a sentence about settings says which of them it is about.
_NAMED = re.compile(r"(\w+) (?:is|holds) |policy .+? has no parameter '(\w+)'")
_LONGEST_MESSAGE = 1000
#: In HTTP the longest canvas goes by OpenAI's name.
_HTTP_NAMES = {"max_new_tokens": "max_tokens"}
RETRY = {"Retry-After": "1"}
_ENGINE_STATUS: dict[type[EngineError], tuple[int, str]] = {
    QueueFullError: (429, "queue_full"),
    RequestFailedError: (500, "request_failed"),
    UnavailableError: (503, "unavailable"),
    DeadlineExceededError: (504, "deadline_exceeded"),
}


class ApiError(Exception):
    """An answer other than 200."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = headers

    @property
    def body(self) -> dict[str, Any]:
        kinds = {401: "authentication_error", 429: "rate_limit_error"}
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {
            "error": {
                "message": self.message,
                "type": kinds.get(self.status, kind),
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self) -> JSONResponse:
        return JSONResponse(self.body, self.status, self.headers)


def bad_request(message: str, param: str | None = None, code: str = "invalid_value") -> ApiError:
    return ApiError(400, message, code, param)


def as_api_error(error: Exception) -> ApiError:
    """The one translation from what went wrong inside to what a client is told."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, EngineError):
        status, code = _ENGINE_STATUS[type(error)]
        headers = RETRY if status in (429, 503) else None
        return ApiError(status, str(error), code, headers=headers)
    if isinstance(error, UserError):
        return _refused(error)
    if isinstance(error, RequestValidationError):
        return _invalid(error.errors()[0])
    if isinstance(error, HTTPException):
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
        headers = dict(error.headers) if error.headers else None
        return ApiError(error.status_code, str(error.detail), code, headers=headers)
    return ApiError(500, "the server failed; its log says why", "internal_error")


def install(app: FastAPI, refused: Callable[[], None]) -> None:
    """Let every error of every endpoint be answered in the same form.

    `refused` is called for a request that is turned away before an endpoint has seen it.
    """

    async def answer(_: Request, error: Exception) -> JSONResponse:
        if isinstance(error, RequestValidationError):
            refused()
        return as_api_error(error).response()

    for kind in (ApiError, EngineError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, answer)


def _refused(error: UserError) -> ApiError:
    """The sentence of a setting's own check, with the setting it is about."""
    # In HTTP the longest canvas goes by OpenAI's name.
    message = str(error).replace("max_new_tokens", "max_tokens")
    named = _NAMED.match(message)
    field = error.field or (named[1] or named[2] if named else None)
    shown = message if len(message) <= _LONGEST_MESSAGE else message[:_LONGEST_MESSAGE] + "…"
    return bad_request(shown, _HTTP_NAMES.get(field, field) if field else None)


def _invalid(error: dict[str, Any]) -> ApiError:
    """The first complaint of pydantic as a sentence that names the field."""
    kind = error["type"]
    if kind == "json_invalid":
        return bad_request(f"the body is not JSON: {error['ctx']['error']}", code="invalid_json")
    path = [str(part) for part in error["loc"][1:]]
    if kind == "extra_forbidden":
        name = _printable(".".join(path))
        return bad_request(f"unknown field {name!r}", name, "unknown_field")
    # Where several types are possible, pydantic also names the one it tried: no part of the field.
    name = _printable(".".join(part for part in path if not _TRIED_TYPE.fullmatch(part)))
    if kind == "value_error" and not name:
        return bad_request(_printable(str(error["ctx"]["error"])))
    if not name:
        return bad_request(
            "the body takes a JSON object, sent with content-type application/json",
            code="invalid_json",
        )
    if kind == "missing":
        return bad_request(f"{name} is missing", name, "missing_field")
    return bad_request(f"{name}: {_printable(error['msg'].removeprefix('Value error, '))}", name)


def _printable(text: str) -> str:
    """What a client sent may hold half characters, which no JSON answer can carry."""
    return text.encode("utf-8", "replace").decode()[:200]
