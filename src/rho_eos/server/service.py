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
from rho_eos.models.known import EMBEDDED
from rho_eos.server.config import ServerConfig
from rho_eos.server.errors import ApiError, as_api_error, bad_request
from rho_eos.server.metrics import Metrics
from rho_eos.server.protocol import AnyRequest
from rho_eos.text.ask import Ask, Request

logger = logging.getLogger(__name__)

BARE = (
    "this model has a chat template, and completions take a prompt as it is: "
    "/v1/chat/completions asks it as it was trained"
)
#: In a text that means something, a token stands for fewer characters than this.
CHARACTERS_PER_TOKEN = 16


class Service:
    """The model, its engine and its limits: everything an endpoint needs."""

    def __init__(self, llm: LLM, config: ServerConfig) -> None:
        self.llm = llm
        self.config = config
        self.engine = AsyncEngine(llm.engine, config.max_waiting)
        self.metrics = Metrics(self.engine, getattr(llm.engine.runner, "stores", None))
        llm.engine.observe = self.metrics.observe_step
        # A folder goes by its last part: where it lies on this machine is nobody's business.
        folder = Path(llm.config.model)
        own = folder.resolve().name if folder.is_dir() else llm.config.model
        self.model = config.served_model_name or own
        template = getattr(getattr(llm, "tokenizer", None), "chat_template", None)
        named = llm.config.model.lower()
        self._expects_chats = bool(template) and named not in EMBEDDED and "base" not in named
        #: Renders the metrics. Where there are other replicas, it asks them all.
        self.render_metrics: Callable[[], Awaitable[bytes]] = self.metrics.render

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the engine's worker, and let it finish what it has at the end."""
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
            if getattr(body, "echo", False):
                raise bad_request("echo is not supported where text is generated", "echo")
            asks = body.asks(id)
            self.check(body.model, asks)
            # Tokenising takes its time with a long prompt, so it is kept off the event loop.
            requests = await asyncio.to_thread(self._prepare, asks)
            generation = Generation(
                requests, id, self.model, body.n or 1, self._note(asks), self._ended
            )
            seconds = min(body.deadline_seconds or float("inf"), self.config.deadline_seconds)
            self.engine.submit(generation, detail, seconds)
        except (ApiError, UserError, EngineError) as error:
            answer = as_api_error(error)
            self.metrics.outcomes.labels("invalid" if answer.status < 429 else answer.code).inc()
            raise answer from error
        if self.config.log_prompts:
            logger.info("prompts: %r", [ask.prompt for ask in asks])
        return generation

    def check(self, model: str | None, asks: list[Ask]) -> None:
        """Refuse what is for another model, and what is more than this server gives.

        Tokenising a megabyte takes a second and a hundred megabytes, so a text that cannot fit,
        whatever the tokenizer makes of it, is refused by its characters.
        """
        config, context = self.config, self.llm.context_length
        if model is not None and model != self.model:
            sentence = f"there is no model {model[:100]!r} here; this server has {self.model!r}"
            raise ApiError(404, sentence, "model_not_found", "model")
        texts = sum(ask.n for ask in asks)
        if not texts:
            raise bad_request("the prompt is empty", "prompt")
        if texts > config.max_choices:
            raise bad_request(
                f"{texts} texts were asked for (n times prompts), but the limit of this server is "
                f"{config.max_choices}",
                "n",
            )
        tokens = min(config.max_prompt_tokens or context, context)
        characters = config.max_prompt_characters or CHARACTERS_PER_TOKEN * tokens
        for ask in asks:
            messages = ask.prompt["messages"] if isinstance(ask.prompt, dict) else None
            given = [ask.prompt] if messages is None else [each["content"] for each in messages]
            given += [ask.suffix, ask.template]
            texts_of = [each for each in given if isinstance(each, str)]
            ids = [each for each in given if isinstance(each, list)]
            _check_size(ask, sum(map(len, ids)), tokens, "tokens")
            _check_size(ask, len(messages or ()), tokens, "messages")
            _check_size(ask, sum(map(len, texts_of)), characters, "characters")

    def _prepare(self, asks: list[Ask]) -> list[Request]:
        requests = [each for ask in asks for each in self.llm.preparer.prepare(ask)]
        longest = max(each.canvas.given_length for each in requests)
        _check_size(asks[0], longest, self.config.max_prompt_tokens or longest, "tokens")
        return requests

    def _note(self, asks: list[Ask]) -> str | None:
        """A sentence where the embedded model is asked what it was never taught, or a model that
        was trained on conversations is given a text outside of one."""
        model = self.llm.config.model
        notes = (note_on(model, ask.prompt, ask.suffix or ask.template) for ask in asks)
        said = next(filter(None, notes), None)
        if said is None and self._expects_chats and any(_is_bare(ask) for ask in asks):
            return BARE
        return said

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


def _check_size(ask: Ask, count: int, limit: int, unit: str) -> None:
    if count > limit:
        plain = not (ask.suffix or ask.template)
        what = "prompt" if plain else "text that is given"
        raise bad_request(f"the {what} has {count} {unit}, but the limit of this server is {limit}")


def _is_bare(ask: Ask) -> bool:
    """Whether it is a text that goes on, outside of any conversation."""
    return isinstance(ask.prompt, str) and not ask.is_gap
