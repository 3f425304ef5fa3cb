"""Between HTTP and the engine: from a checked request to sequences in flight, and their metrics."""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rho_eos.base.errors import UserError
from rho_eos.base.outputs import Output
from rho_eos.decoding.params import LONGEST, DecodeParams
from rho_eos.embedded.scope import note_on
from rho_eos.engine.async_engine import AsyncEngine
from rho_eos.engine.calls import Call, News
from rho_eos.engine.errors import DeadlineExceededError, EngineError
from rho_eos.engine.request import Detail, Request
from rho_eos.llm import LLM
from rho_eos.server.config import ServerConfig
from rho_eos.server.errors import ApiError, as_api_error, bad_request
from rho_eos.server.json_form import STRING, Form, Spelling
from rho_eos.server.json_schema import Property
from rho_eos.server.limits import check_prompt
from rho_eos.server.metrics import Metrics
from rho_eos.server.protocol import AnyRequest

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Generation:
    """A request in flight. Iterate for (choice, event); leaving it cancels what is not finished."""

    id: str
    model: str
    requests: list[Request]  # one per choice
    choices_per_prompt: int
    call: Call
    metrics: Metrics
    note: str | None = None  # what the client should know of its prompt
    created: int = field(default_factory=lambda: int(time.time()))
    started: float = field(default_factory=time.perf_counter)
    outputs: dict[int, Output] = field(default_factory=dict)  # by choice

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.call.__exit__(kind, error, traceback)
        seconds = time.perf_counter() - self.started
        outcome = self._outcome(error)
        self.metrics.outcomes.labels(outcome).inc()
        if len(self.outputs) == len(self.requests):
            self.metrics.latency.observe(seconds)
        logger.info(
            "%s %s: %d choices, %d prompt and %d generated tokens, %d forwards, %.3fs",
            self.id,
            outcome,
            len(self.requests),
            sum(request.given_tokens for request in self.requests),
            sum(output.usage.e_token for output in self.outputs.values()),
            sum(output.usage.nfe for output in self.outputs.values()),
            seconds,
        )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> News:
        index, event = await anext(self.call)
        if event.output is not None:
            self.outputs[index] = event.output
            self.metrics.observe_end(event.output.usage)
        return index, event

    async def finish(self) -> list[Output]:
        """Wait for all choices, in their order."""
        async for _ in self:
            pass
        return self.ordered()

    async def in_time(self, work: Awaitable[None]) -> None:
        """Wait for what a client has to do, which must not take longer than the whole may."""
        try:
            async with asyncio.timeout_at(self.call.deadline):
                await work
        except TimeoutError:
            raise DeadlineExceededError("the answer was not read before the deadline") from None

    def ordered(self) -> list[Output]:
        return [self.outputs[index] for index in range(len(self.requests))]

    def _outcome(self, error: BaseException | None) -> str:
        if isinstance(error, EngineError):
            return as_api_error(error).code
        if len(self.outputs) < len(self.requests):
            return "cancelled"
        reasons = {output.finish_reason.value for output in self.outputs.values()}
        return "length" if "length" in reasons else "stop"


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

    async def open(self, kind: str, request: AnyRequest, detail: Detail) -> Generation:
        """Check a request and put it in flight, or say why not."""
        id = f"{kind}-{uuid.uuid4().hex}"
        try:
            requests = await self._prepare(id, request)
            seconds = min(request.deadline_seconds or float("inf"), self.config.deadline_seconds)
            call = self.engine.submit(requests, detail, seconds)
        except (ApiError, UserError, EngineError) as error:
            answer = as_api_error(error)
            self.metrics.outcomes.labels("invalid" if answer.status < 429 else answer.code).inc()
            raise answer from error
        if self.config.log_prompts:
            logger.info("prompts: %r", request.prompts())
        note = self._note(request)
        return Generation(id, self.model, requests, request.n or 1, call, self.metrics, note)

    def _note(self, request: AnyRequest) -> str | None:
        """A sentence where the embedded model is asked what it was never taught."""
        beside = request.after or request.template
        notes = [note_on(self.llm.config.model, prompt, beside) for prompt in request.prompts()]
        return next((note for note in notes if note), None)

    async def _prepare(self, id: str, request: AnyRequest) -> list[Request]:
        if request.model is not None and request.model != self.model:
            raise ApiError(
                404,
                f"there is no model {request.model[:100]!r} here; this server has {self.model!r}",
                "model_not_found",
                "model",
            )
        request.check()
        texts = (request.n or 1) * len(request.prompts())
        if texts > self.config.max_choices:
            raise bad_request(
                f"{texts} texts were asked for (n times prompts), but the limit of this server is "
                f"{self.config.max_choices}",
                "n",
            )
        if not texts:
            raise bad_request("the prompt is empty", "prompt")
        for prompt in request.prompts():
            keys = "".join(each.key for each in request.json_properties() or ())
            beside = (request.after, request.template, keys)
            check_prompt(prompt, beside, self.config, self.llm.context_length)
        return await asyncio.to_thread(self._encode, id, request)

    def _encode(self, id: str, request: AnyRequest) -> list[Request]:
        """Tokenising takes its time with a long prompt, so it is kept off the event loop."""
        prepare = self.llm.preparer.prepare
        requests = []
        for index, (prompt, params) in enumerate(request.choices(self.llm.special)):
            given: dict[str, Any] = {"suffix": request.after, "template": request.template}
            if properties := request.json_properties():
                params, given = self._in_form(properties, params)
            requests.append(prepare(prompt, params, id=f"{id}-{index}", raw=True, **given))
        limit = self.config.max_prompt_tokens
        longest = max(each.given_tokens for each in requests)
        if limit is not None and longest > limit:
            what = "prompt" if request.after is request.template is None else "text that is given"
            raise bad_request(
                f"the {what} has {longest} tokens, but the limit of this server is {limit}"
            )
        return requests

    def _in_form(
        self, properties: Sequence[Property], params: DecodeParams
    ) -> tuple[DecodeParams, dict[str, Any]]:
        """What to prepare so that the answer is JSON with these properties."""
        given = params.model_fields_set
        start = params.initial_length if "initial_length" in given else STRING
        form = Form(properties, self._spelling, start)
        if "max_new_tokens" not in given:
            params = params.replaced(max_new_tokens=min(form.longest, LONGEST))
        elif form.length > params.max_new_tokens:
            raise bad_request(
                f"max_tokens is {params.max_new_tokens}, but the values of this schema start with "
                f"{form.length} tokens",
                "max_tokens",
            )
        names = ("template", "processors", "sized", "write")
        return params, {name: getattr(form, name) for name in names}

    @cached_property
    def _spelling(self) -> Spelling:
        llm = self.llm
        return Spelling(llm.tokenizer, llm.special, llm.checkpoint.config.vocab_size)


def default_name(model: str) -> str:
    """A folder goes by its last part: where it lies on this machine is nobody's business."""
    return Path(model).resolve().name if Path(model).is_dir() else model
