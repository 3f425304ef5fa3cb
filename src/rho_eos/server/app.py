"""The endpoints. Each reads a checked request, puts it in flight and lays out what comes back.

RequestLog → HostCheck → (CORS) → KeyCheck → BodyLimit → endpoint → Service → AsyncEngine
"""

from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse
from fastapi.security import HTTPBearer
from pydantic import BaseModel
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from rho_eos import __version__
from rho_eos.decoding.schema import schema
from rho_eos.engine.request import Detail
from rho_eos.server import errors
from rho_eos.server.denoise import Watcher
from rho_eos.server.middleware import DOCS, BodyLimit, HostCheck, KeyCheck, RequestLog
from rho_eos.server.playground import playground_facts
from rho_eos.server.protocol import AnyRequest, request_models
from rho_eos.server.responses import CHAT, COMPLETION, Shape, text_events, whole_answer
from rho_eos.server.scores import Scorer
from rho_eos.server.service import Service
from rho_eos.server.stream import EventStream, unless_disconnected
from rho_eos.server.weights import PATH as WEIGHTS
from rho_eos.server.weights import add_weights

STATIC = Path(__file__).parent / "static"


class ErrorDetail(BaseModel):
    """For the description of the API: the form that `ApiError` gives an error."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorAnswer(BaseModel):
    error: ErrorDetail


def create_app(service: Service) -> FastAPI:
    """The whole server. Its lifespan starts the engine's worker and drains it at the end."""
    config = service.config
    app = FastAPI(
        title="rho-eos",
        version=__version__,
        lifespan=lambda _: service.running(),
        # Its page loads scripts from elsewhere, so it is there only on request.
        docs_url=DOCS if config.docs else None,
        redoc_url=None,
        # So that the page has a place to enter a key; the middleware checks it, here and elsewhere.
        dependencies=[Depends(HTTPBearer(auto_error=False))] if config.docs else [],
        responses={"4XX": {"model": ErrorAnswer}, "5XX": {"model": ErrorAnswer}},
    )
    app.state.service = service
    errors.install(app, service.metrics.outcomes.labels("invalid").inc)
    _add_generation(app, service)
    _add_facts(app, service)
    own_keys, own_limits = {}, {}
    if key := config.key_of_weights():
        add_weights(app, service)
        own_keys[WEIGHTS] = key
        own_limits[WEIGHTS] = (config.max_weights_bytes, config.deadline_seconds)
    app.mount("/static", StaticFiles(directory=STATIC, check_dir=False), name="static")
    # The last one added is the outermost.
    limits = (config.max_body_bytes, config.body_seconds)
    app.add_middleware(BodyLimit, *limits, own=own_limits)
    app.add_middleware(KeyCheck, keys=config.keys(), docs=config.docs, own=own_keys)
    if config.cors_origin:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.cors_origin,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Request-ID"],
        )
    app.add_middleware(HostCheck, names=(config.host, *config.allowed_host))
    app.add_middleware(RequestLog)
    return app


def _add_generation(app: FastAPI, service: Service) -> None:
    chat_request, completion_request = request_models()
    detokenize = service.llm.engine.detokenize
    scorer = Scorer(service)
    watcher = Watcher(detokenize, service.llm.special.ends)

    async def answer(shape: Shape, body: AnyRequest, request: Request) -> Response:
        if body.stream and body.stream_mode == "denoise":
            generation = await service.open(shape.id_prefix, body, Detail.STEPS)
            return EventStream(generation, watcher.events(generation))
        if body.stream:
            generation = await service.open(shape.id_prefix, body, Detail.TEXT)
            include_usage = bool(body.stream_options and body.stream_options.include_usage)
            events = text_events(shape, generation, include_usage, detokenize)
            return EventStream(generation, body.streamed(events))
        with await service.open(shape.id_prefix, body, Detail.OUTPUT) as generation:
            if await unless_disconnected(request.receive, generation.finish()) is None:
                return Response(status_code=499)  # for the log: nobody is there to read it
        return JSONResponse(body.answered(await whole_answer(shape, generation, detokenize)))

    @app.post("/v1/chat/completions")
    async def chat_completions(body: chat_request, request: Request) -> Response:  # type: ignore[valid-type]
        """The assistant's next turn in a conversation."""
        return await answer(CHAT, body, request)

    @app.post("/v1/completions")
    async def completions(body: completion_request, request: Request) -> Response:  # type: ignore[valid-type]
        """Text behind a prompt, which is taken as it is; with echo the scores of its tokens."""
        if body.echo:  # type: ignore[attr-defined]
            found = await unless_disconnected(request.receive, scorer.answer(body))
            return Response(status_code=499) if found is None else JSONResponse(found)
        return await answer(COMPLETION, body, request)


def _add_facts(app: FastAPI, service: Service) -> None:
    model: dict[str, Any] = {
        "id": service.model,
        "object": "model",
        "created": 0,
        "owned_by": "rho-eos",
        "max_model_len": service.llm.context_length,
    }
    # Scripted models have neither.
    if adapters := getattr(getattr(service.llm, "checkpoint", None), "adapters", ()):
        model["adapters"] = [each.as_dict() for each in adapters]
    if placement := getattr(service.llm, "placement", None):
        model |= {"placement": placement.as_dict()}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [model]}

    @app.get("/v1/models/{name:path}")
    async def model_named(name: str) -> dict[str, Any]:
        if name != service.model:
            raise errors.ApiError(404, f"there is no model {name[:100]!r} here", "model_not_found")
        return model

    @app.get("/v1/rho_eos/schema")
    async def policies() -> dict[str, Any]:
        """All policies of this server, and the parameters of each."""
        return schema()

    @app.get("/v1/rho_eos/playground")
    async def playground() -> dict[str, Any]:
        """What the page needs to know of the model."""
        return playground_facts(service)

    @app.head("/health", include_in_schema=False)
    @app.get("/health")
    async def health() -> Response:
        """The process and its engine are alive; a server whose engine died is about to end."""
        good = service.engine.alive
        return JSONResponse({"status": "alive" if good else "dead"}, 200 if good else 503)

    @app.head("/ready", include_in_schema=False)
    @app.get("/ready")
    async def ready() -> Response:
        """The model is loaded, and a request sent now would run."""
        good = service.engine.ready
        return JSONResponse({"status": "ready" if good else "not ready"}, 200 if good else 503)

    @app.get("/version")
    async def version() -> dict[str, str]:
        return {"version": __version__}

    @app.get("/metrics")
    async def metrics() -> Response:
        """For Prometheus."""
        return Response(await service.render_metrics(), media_type="text/plain; version=0.0.4")

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")
