"""`POST /v1/weights`: a trainer replaces the weights of the model that is being served.

The route exists only where the server was given a key for it, which is none of the keys of clients.
"""

import asyncio
import logging
from functools import partial
from pathlib import Path
from typing import Any

import torch
from fastapi import FastAPI, Request
from safetensors import SafetensorError
from safetensors.torch import load

from rho_eos.base.errors import UserError
from rho_eos.engine.errors import DeadlineExceededError, EngineError
from rho_eos.models.update import Exchange
from rho_eos.server.errors import ApiError, as_api_error, bad_request
from rho_eos.server.fields import Strict
from rho_eos.server.service import Service

logger = logging.getLogger(__name__)

PATH = "/v1/weights"
TENSORS = "application/octet-stream"


class WeightsRequest(Strict):
    """Weights that lie where the server can read them."""

    path: str


def add_weights(app: FastAPI, service: Service) -> None:
    """Add the route, which the configuration asks for."""
    one_at_a_time = asyncio.Lock()  # each lays the new weights out beside the old ones

    @app.post(PATH)
    async def weights(request: Request) -> dict[str, Any]:
        """Replace weights: all that are given, or none. Safetensors, or the path of them."""
        body = await request.body()
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        async with one_at_a_time:
            try:
                given = _tensors(body) if kind == TENSORS else _path(service, kind, body)
                pairs = await asyncio.to_thread(service.llm.updates.staged, given)
                version = await _replaced(service, pairs)
            except (UserError, EngineError) as error:
                raise as_api_error(error) from error
        logger.info("weights were replaced: version %d, %d tensors", version, len(pairs))
        return {"object": "weights", "weights_version": version}


async def _replaced(service: Service, pairs: list[Exchange]) -> int:
    """The new version, when what runs is finished and the weights are exchanged."""
    change = partial(service.llm.replace_weights, pairs)
    ask = partial(service.llm.engine.change, change)
    try:
        async with asyncio.timeout(service.config.deadline_seconds):
            promised = await asyncio.wrap_future(service.engine.between_steps(ask))
            return await asyncio.wrap_future(promised)
    except TimeoutError:
        late = "what runs was not finished before the deadline: the weights stay as they are"
        raise DeadlineExceededError(late) from None


def _tensors(body: bytes) -> dict[str, torch.Tensor]:
    try:
        return load(body)
    except (SafetensorError, ValueError, KeyError) as error:
        raise bad_request("the body holds no safetensors") from error


def _path(service: Service, kind: str, body: bytes) -> Path:
    """A path within the folder that the server was given for weights."""
    if kind != "application/json":
        sentence = f"the body takes {TENSORS} (safetensors) or application/json with a path"
        raise ApiError(415, sentence, "unsupported_media_type")
    try:
        given = WeightsRequest.model_validate_json(body).path
    except ValueError as error:
        raise bad_request("the body takes {'path': TEXT}", "path") from error
    folder = service.config.weights_folder
    if folder is None:
        raise bad_request("this server has no weights_folder, so it takes no path", "path")
    root = Path(folder).resolve()
    try:
        found = (root / given).resolve()  # of links, where they lead
    except (OSError, ValueError):
        found = Path("/")
    if not found.is_relative_to(root) or not found.exists():
        raise bad_request("there are no such weights in the folder of this server", "path")
    return found
