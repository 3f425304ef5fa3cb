"""Between HTTP and the engine: from a checked body to sequences in flight, and their metrics."""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from rho_eos.base.errors import UserError
from rho_eos.embedded.scope import note_on
from rho_eos.engine.async_engine import AsyncEngine
from rho_eos.engine.errors import EngineError
from rho_eos.engine.generation import Generation
from rho_eos.engine.request import Detail
from rho_eos.llm import LLM
from rho_eos.server.config import ServerConfig
from rho_eos.server.errors import ApiError, as_api_error, bad_request
from rho_eos.server.limits import check_prompt
from rho_eos.server.metrics import Metrics
from rho_eos.server.protocol import AnyRequest
from rho_eos.text.ask import Ask, Request

logger = logging.getLogger(__name__)


class Service:
    """The model, its engine and its limits: everything an endpoint needs."""

    def __init__(self, llm: LLM, config: ServerConfig) -> None:
        self.llm = llm
        self.config = config
        self.metrics = Metrics()
        llm.engine.observe = self.metrics.observe_step
        self.engine = AsyncEngine(llm.engine, config.max_waiting)
        self.metrics.watch(self.engine)
        cache = getattr(llm.engine.runner, "cache", None)
        if cache is not None:
            self.metrics.watch_cache(cache)
        self.model = config.served_model_name or default_name(llm.config.model)
        #: Where there are other replicas: asks them all.
        self.gather_metrics: Callable[[], Awaitable[bytes]] | None = None

    async def render_metrics(self) -> bytes:
        return await self.gather_metrics() if self.gather_metrics else self.metrics.render()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.engine.start()
        try:
            yield
        finally:
            await self.engine.drain(self.config.drain_seconds)
            await self.engine.stop()

    async def open(self, kind: str, body: AnyRequest, detail: Detail) -> Generation:
        """Check what a body asks for and put it in flight, or say why not."""
        id = f"{kind}-{uuid.uuid4().hex}"
        try:
            asks = self._checked(body, body.asks(id))
            # Tokenising takes its time with a long prompt, so it is kept off the event loop.
            requests = await asyncio.to_thread(self._prepare, asks)
            note = next(filter(None, map(self._note, asks)), None)
            generation = Generation(requests, id, self.model, body.n or 1, note, self._ended)
            seconds = min(body.deadline_seconds or float("inf"), self.config.deadline_seconds)
            self.engine.submit(generation, detail, seconds)
        except (ApiError, UserError, EngineError) as error:
            answer = as_api_error(error)
            if answer.param == "schema":  # which a body holds there
                answer.param = "response_format"
            self.metrics.outcomes.labels("invalid" if answer.status < 429 else answer.code).inc()
            raise answer from error
        if self.config.log_prompts:
            logger.info("prompts: %r", [ask.prompt for ask in asks])
        return generation

    def _checked(self, body: AnyRequest, asks: list[Ask]) -> list[Ask]:
        """The same asks, unless they are for another model, or for more than this server gives."""
        if body.model is not None and body.model != self.model:
            raise ApiError(
                404,
                f"there is no model {body.model[:100]!r} here; this server has {self.model!r}",
                "model_not_found",
                "model",
            )
        texts = sum(ask.n for ask in asks)
        if texts > self.config.max_choices:
            raise bad_request(
                f"{texts} texts were asked for (n times prompts), but the limit of this server is "
                f"{self.config.max_choices}",
                "n",
            )
        if not texts:
            raise bad_request("the prompt is empty", "prompt")
        for ask in asks:
            beside = (ask.suffix, ask.template, _keys(ask))
            check_prompt(ask.prompt, beside, self.config, self.llm.context_length)
        return asks

    def _prepare(self, asks: list[Ask]) -> list[Request]:
        requests = [each for ask in asks for each in self.llm.preparer.prepare(ask)]
        limit = self.config.max_prompt_tokens
        longest = max(each.canvas.given_length for each in requests)
        if limit is not None and longest > limit:
            plain = asks[0].suffix is asks[0].template is None
            what = "prompt" if plain else "text that is given"
            raise bad_request(
                f"the {what} has {longest} tokens, but the limit of this server is {limit}"
            )
        return requests

    def _note(self, ask: Ask) -> str | None:
        """A sentence where the embedded model is asked what it was never taught."""
        return note_on(self.llm.config.model, ask.prompt, ask.suffix or ask.template)

    def _ended(self, generation: Generation, error: BaseException | None) -> None:
        """Count and log a generation that was left."""
        seconds = time.perf_counter() - generation.started
        outputs = generation.outputs.values()
        for output in outputs:
            self.metrics.observe_end(output.usage)
        if isinstance(error, EngineError):
            outcome = as_api_error(error).code
        elif len(outputs) < len(generation.requests):
            outcome = "cancelled"
        else:
            self.metrics.latency.observe(seconds)
            reasons = {output.finish_reason.value for output in outputs}
            outcome = "length" if "length" in reasons else "stop"
        self.metrics.outcomes.labels(outcome).inc()
        logger.info(
            "%s %s: %d choices, %d prompt and %d generated tokens, %d forwards, %.3fs",
            generation.id,
            outcome,
            len(generation.requests),
            sum(request.canvas.given_length for request in generation.requests),
            sum(output.usage.e_token for output in outputs),
            sum(output.usage.nfe for output in outputs),
            seconds,
        )


def _keys(ask: Ask) -> str:
    """The text that a schema gives to the answer: the names of its properties."""
    properties = (ask.schema or {}).get("properties")
    return "".join(properties) if isinstance(properties, dict) else ""


def default_name(model: str) -> str:
    """A folder goes by its last part: where it lies on this machine is nobody's business."""
    return Path(model).resolve().name if Path(model).is_dir() else model
