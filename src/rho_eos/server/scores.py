"""Completions that only echo: how likely each token of a given text is, and nothing generated.

OpenAI's form of it is `echo: true, logprobs: N, max_tokens: 0`. A masked diffusion model has more
than one such number, so a request may say which it wants (`score_method`); docs/scores.md tells
them apart.
"""

import asyncio
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from rho_eos.base.errors import UserError
from rho_eos.base.outputs import TokenLogprob
from rho_eos.engine.errors import (
    DeadlineExceededError,
    EngineError,
    QueueFullError,
    UnavailableError,
)
from rho_eos.engine.likelihood import Score
from rho_eos.engine.params import ScoreParams
from rho_eos.server.errors import ApiError, as_api_error, bad_request
from rho_eos.server.logprobs import Teller, for_completion
from rho_eos.server.protocol import Completion
from rho_eos.server.service import Service
from rho_eos.text.ask import Ask
from rho_eos.text.pairs import Pair, refuse_blocks

T = TypeVar("T")
AT_ONCE = 4  # requests that are scored beside each other; they take turns with those that decode


class Scorer:
    """Scores texts for HTTP requests. Its forwards run in the engine's thread, between steps."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="rho-eos-score")
        self._asked = 0

    async def answer(self, body: Completion) -> dict[str, Any]:
        """What a body asks for, or an error that says why not."""
        service = self._service
        try:
            how = _checked(body)
            asks = body.asks("score")
            service.check(body.model, asks)
            if not service.engine.ready:
                raise UnavailableError("the server is shutting down and takes no new requests")
            if self._asked >= AT_ONCE + service.config.max_waiting:
                raise QueueFullError(f"{self._asked} texts are being scored; the queue is full")
            self._asked += 1
            try:
                seconds = min(
                    body.deadline_seconds or float("inf"), service.config.deadline_seconds
                )
                texts = await self._in_time(seconds, asks, how, body.logprobs or 0)
            finally:
                self._asked -= 1
        except (ApiError, UserError, EngineError) as error:
            answer = as_api_error(error)
            outcome = "invalid" if answer.status < 429 else answer.code
            service.metrics.outcomes.labels(outcome).inc()
            raise answer from error
        service.metrics.outcomes.labels("scored").inc()
        prompt_tokens = sum(len(score.token_ids) + 1 for _, score in texts)
        return {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": service.model,
            "choices": [choice for choice, _ in texts],
            "usage": {
                "prompt_tokens": prompt_tokens,
                "completion_tokens": 0,
                "total_tokens": prompt_tokens,
                "rho_eos": {"nfe": sum(score.forwards for _, score in texts)},
            },
        }

    async def _in_time(
        self, seconds: float, asks: list[Ask], how: ScoreParams, top: int
    ) -> list[tuple[dict[str, Any], Score]]:
        """In a thread of the scorer's, which stops when nobody waits for it any more."""
        left = threading.Event()
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._threads, self._score, asks, how, top, left)
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            raise DeadlineExceededError("the texts were not scored before the deadline") from None
        finally:
            left.set()

    def _score(
        self, asks: list[Ask], how: ScoreParams, top: int, left: threading.Event
    ) -> list[tuple[dict[str, Any], Score]]:
        llm, engine = self._service.llm, self._service.engine
        refuse_blocks(llm.checkpoint.blocks, how.method)

        def turn(work: Callable[[], T]) -> T:
            if left.is_set():
                raise DeadlineExceededError("nobody waits for it any more")
            return engine.between_steps(work).result()

        pairs = []
        for ask in asks:
            ids = llm.preparer.encoder.prompt(ask.prompt, raw=True)
            if len(ids) > llm.context_length:
                raise UserError(
                    f"the prompt has {len(ids)} tokens; the model takes {llm.context_length}"
                )
            pairs.append(Pair(ids[:1], ids[1:]))
        scores = list(llm.score_pairs(pairs, how, turn, top))
        return [
            (self._choice(index, pair, score), score)
            for index, (pair, score) in enumerate(zip(pairs, scores, strict=True))
        ]

    def _choice(self, index: int, pair: Pair, score: Score) -> dict[str, Any]:
        """The text with its tokens. Nothing is known of the first one, as with other servers."""
        detokenize = self._service.llm.engine.detokenize
        text = detokenize([*pair.prompt, *pair.answer])
        tops = score.top or [[] for _ in pair.answer]
        scored = zip(pair.answer, score.token_logprobs, tops, strict=True)
        tokens = [TokenLogprob(pair.prompt[0], 0.0)]
        tokens += [TokenLogprob(token, logprob, tuple(top)) for token, logprob, top in scored]
        told = Teller(detokenize).take(tokens, len(text) + 1, True)
        logprobs = for_completion(told)
        logprobs["token_logprobs"][0] = None
        if logprobs["top_logprobs"]:
            logprobs["top_logprobs"][0] = None
        about = {
            "method": score.method,
            "logprob": score.logprob,
            "standard_error": score.standard_error,
            "forwards": score.forwards,
        }
        return {
            "index": index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": "length",
            "score": about,
        }


def _checked(body: Completion) -> ScoreParams:
    """How to score, where a body asks for nothing else."""
    fields = body.model_fields_set
    most = next(
        (
            v
            for v in (getattr(body, "max_tokens", None), body.max_completion_tokens)
            if v is not None
        ),
        None,
    )
    if body.logprobs is None or most != 0:
        raise bad_request(
            "echo is not supported but to score: it goes with logprobs and max_tokens: 0",
            "echo",
            "unsupported",
        )
    for name in ("stream", "suffix", "template"):
        if getattr(body, name):
            raise bad_request(f"{name} does not go with echo", name)
    if (body.n or 1) > 1:
        raise bad_request("n does not go with echo: a text has one score", "n")
    method = body.score_method or "chain"
    if body.logprobs and method == "bound":
        raise bad_request(
            "logprobs is above 0, but a bound has no likeliest tokens: score_method takes chain or "
            "pseudo with it",
            "logprobs",
        )
    given: dict[str, Any] = {"method": method}
    if body.score_draws is not None:
        given["draws"] = body.score_draws
    for name in ("seed", "cfg_scale"):
        if name in fields and (value := getattr(body, name)) is not None:
            given[name] = value
    return ScoreParams(**given)
