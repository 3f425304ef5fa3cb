"""Every denoising step as an event, for who wants to watch: what was written, L, ρ, and why."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from dataclasses import asdict
from functools import cache
from typing import Any

from rho_eos.base.outputs import StepRecord
from rho_eos.decoding.params import DecodeParams
from rho_eos.engine.generation import Generation
from rho_eos.engine.request import Detokenize, StepEvent
from rho_eos.server.responses import Event, usage
from rho_eos.views.narration import explain, signal_name

logger = logging.getLogger(__name__)
#: What an event tells of a step as its record has it.
_TOLD = (
    *("step", "length", "masks", "rho", "signal", "action", "change"),
    *("moved", "computed", "exact", "refresh", "block"),
)


class Watcher:
    """Makes events of the steps of requests; the text of a token is looked up once and kept.

    Args:
        detokenize: Makes the text of token ids.
        ends: The tokens that end a text.
    """

    def __init__(self, detokenize: Detokenize, ends: tuple[int, ...]) -> None:
        self._ends = ends
        self._text = cache(lambda token: detokenize([token]))

    async def events(self, generation: Generation) -> AsyncIterator[Event]:
        """For each choice a start, its steps, and how it ended."""
        async for index, event in generation:
            # Off the event loop: a tokenizer that encodes a long prompt makes everybody wait.
            for told in await asyncio.to_thread(self._events_of, generation, index, event):
                yield {"object": told.pop("object"), "id": generation.id, "index": index, **told}

    def _events_of(self, generation: Generation, index: int, event: StepEvent) -> list[Event]:
        request, record, output = generation.requests[index], event.record, event.output
        params, canvas = request.params, request.canvas
        events: list[Event] = []
        if record.step == 0:
            start = {
                "object": "rho_eos.start",
                "model": generation.model,
                "policy": params.policy,
                "params": params.model_dump(mode="json"),
                "region": params.region,
                "signal": signal_name(params),
                "prompt_tokens": canvas.given_length,
                "length": canvas.length,
                "given": self._placed(canvas.between.items()),
                "note": generation.note,
            }
            events.append(start)
        step = {
            "object": "rho_eos.step",
            **{name: getattr(record, name) for name in _TOLD},
            "committed": [
                (at, self._text(token), confidence, token in self._ends)
                for at, token, confidence in record.committed
            ],
            "written": self._placed(record.written),
            "foretold": None if record.foretold is None else asdict(record.foretold),
            "why": _why(params, record),
            "positions_evaluated": event.positions_evaluated,
        }
        events.append(step)
        if output is not None:
            done = {
                "object": "rho_eos.done",
                "text": output.text,
                "finish_reason": output.finish_reason.value,
                "usage": usage(output.usage.prompt_tokens, [output]),
            }
            events.append(done)
        return events

    def _placed(self, tokens: Iterable[tuple[int, int | None]]) -> list[Any]:
        """Position, text and whether it is an end, of each token; the text of a MASK is None."""
        return [
            (at, None if token is None else self._text(token), token in self._ends)
            for at, token in tokens
        ]


def _why(params: DecodeParams, record: StepRecord) -> str:
    """The policy's own words for a step. Where finding them fails, the request goes on without."""
    try:
        return str(explain(params, record))
    except Exception:
        logger.warning("policy %s cannot explain a step", params.policy, exc_info=True)
        return ""
