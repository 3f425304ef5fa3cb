"""Every denoising step as an event, for who wants to watch: what was written, L, ρ, and why.

Token ids become texts here, at the edge, each once.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from rho_eos.base.outputs import Output
from rho_eos.decoding.params import DecodeParams
from rho_eos.engine.generation import Generation
from rho_eos.engine.request import StepEvent
from rho_eos.server.responses import usage
from rho_eos.views.narration import explain, signal_name

logger = logging.getLogger(__name__)
Event = dict[str, Any]
#: What an event tells of a step as its record has it.
_TOLD = (
    *("step", "length", "masks", "rho", "signal", "action", "change"),
    *("moved", "computed", "exact", "refresh"),
)


class TokenTexts:
    """What each token looks like. Kept for good: there are no more of them than the vocabulary."""

    def __init__(self, detokenize: Callable[[list[int]], str], ends: tuple[int, ...]) -> None:
        self.ends = ends
        self._detokenize = detokenize
        self._texts: dict[int, str] = {}

    def __getitem__(self, token: int) -> str:
        return self._texts[token]

    def placed(
        self, tokens: Iterable[tuple[int, int | None]]
    ) -> list[tuple[int, str | None, bool]]:
        """(position, text, whether it is an end) of tokens with their positions; None: a MASK."""
        return [
            (at, None if token is None else self[token], token in self.ends) for at, token in tokens
        ]

    async def learn(self, tokens: Iterable[int | None]) -> None:
        """Off the event loop: a tokenizer that encodes a long prompt makes everybody wait."""
        new = {token for token in tokens if token is not None} - self._texts.keys()
        if new:
            self._texts |= await asyncio.to_thread(
                lambda: {token: self._detokenize([token]) for token in new}
            )


async def denoise_events(generation: Generation, texts: TokenTexts) -> AsyncIterator[Event]:
    """For each choice a start, its steps, and how it ended."""
    async for index, event in generation:
        record = event.record
        await texts.learn(token for _, token, _ in record.committed)
        await texts.learn(token for _, token in record.written)
        if record.step == 0:
            await texts.learn(generation.requests[index].canvas.between.values())
            yield _start(generation, index, texts)
        yield _step(generation, index, event, texts)
        if event.output is not None:
            yield _done(generation, index, event.output)


def _start(generation: Generation, index: int, texts: TokenTexts) -> Event:
    request = generation.requests[index]
    params = request.params
    return {
        "object": "rho_eos.start",
        "id": generation.id,
        "model": generation.model,
        "index": index,
        "policy": params.policy,
        "params": params.model_dump(mode="json"),
        "region": params.region,
        "signal": signal_name(params),
        "prompt_tokens": request.canvas.given_length,
        "length": request.canvas.length,
        "given": texts.placed(request.canvas.between.items()),
        "note": generation.note,
    }


def _step(generation: Generation, index: int, event: StepEvent, texts: TokenTexts) -> Event:
    record, params = event.record, generation.requests[index].params
    return {
        "object": "rho_eos.step",
        "id": generation.id,
        "index": index,
        **{name: getattr(record, name) for name in _TOLD},
        "committed": [
            (at, texts[token], p, token in texts.ends) for at, token, p in record.committed
        ],
        "written": texts.placed(record.written),
        "why": _say(params, lambda: explain(params, record)),
        "positions_evaluated": event.positions_evaluated,
    }


def _done(generation: Generation, index: int, output: Output) -> Event:
    return {
        "object": "rho_eos.done",
        "id": generation.id,
        "index": index,
        "text": output.text,
        "finish_reason": output.finish_reason.value,
        "usage": usage(output.usage.prompt_tokens, [output]),
    }


def _say(params: DecodeParams, ask: Callable[[], str]) -> str:
    """A policy's own words; one that fails to find them does not fail its request."""
    try:
        return str(ask())
    except Exception:
        logger.warning("policy %s cannot explain a step", params.policy, exc_info=True)
        return ""
