"""What a client gets back: OpenAI's objects, with what the generation cost as an extension."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rho_eos.base.outputs import Output
from rho_eos.engine.generation import Generation
from rho_eos.engine.request import Detokenize
from rho_eos.server.logprobs import Teller, Told, for_chat, for_completion

Event = dict[str, Any]
#: What is summed over the texts of a request, beside OpenAI's own figures.
_COUNTED = (
    *("n_token", "nfe", "positions_evaluated", "expansions", "contractions"),
    *("positions_exact", "positions_reused", "refreshes"),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """How an endpoint lays out its answers. The two endpoints differ in nothing else."""

    id_prefix: str
    object: str
    chunk_object: str
    choice: Callable[[str], dict[str, Any]]  # of a whole text
    delta: Callable[[str], dict[str, Any]]  # of the next part of a text
    logprobs: Callable[[Sequence[Told]], dict[str, Any]]
    opening: dict[str, Any] | None = None  # what a stream sends before the first text


CHAT = Shape(
    "chatcmpl",
    "chat.completion",
    "chat.completion.chunk",
    lambda text: {"message": {"role": "assistant", "content": text, "refusal": None}},
    lambda text: {"delta": {"content": text} if text else {}},
    for_chat,
    {"delta": {"role": "assistant", "content": ""}},
)
COMPLETION = Shape(
    "cmpl",
    "text_completion",
    "text_completion",
    lambda text: {"text": text},
    lambda text: {"text": text},
    for_completion,
)


async def whole_answer(
    shape: Shape, generation: Generation, detokenize: Detokenize
) -> dict[str, Any]:
    """The answer to a request that did not ask for a stream."""

    def logprobs(output: Output) -> dict[str, Any] | None:
        if output.logprobs is None:
            return None
        return shape.logprobs(Teller(detokenize).take(output.logprobs, len(output.text), True))

    def choices() -> list[dict[str, Any]]:
        return [
            {
                "index": index,
                **shape.choice(output.text),
                **({"gaps": output.gaps} if output.gaps else {}),
                "logprobs": logprobs(output),
                "finish_reason": output.finish_reason.value,
            }
            for index, output in enumerate(generation.ordered())
        ]

    return {
        **_head(generation, shape.object),
        # Off the event loop: a tokenizer that encodes a long prompt makes everybody wait.
        "choices": await asyncio.to_thread(choices),
        "usage": _usage_of(generation),
        **({"note": generation.note} if generation.note else {}),
    }


async def text_events(
    shape: Shape, generation: Generation, include_usage: bool, detokenize: Detokenize
) -> AsyncIterator[Event]:
    """OpenAI's chunks: for each choice the text as it becomes final.

    The engine tells only what is final, so a character is sent once and never taken back.
    """
    head = _head(generation, shape.chunk_object)
    tellers = [Teller(detokenize) for _ in generation.requests]
    sent: dict[int, int] = {}  # characters, by choice

    def chunk(index: int, content: Event, reason: Any = None, logprobs: Any = None) -> Event:
        choice = {"index": index, **content, "logprobs": logprobs, "finish_reason": reason}
        return {**head, "choices": [choice], **({"usage": None} if include_usage else {})}

    async for index, event in generation:
        if index not in sent and shape.opening:
            yield chunk(index, shape.opening)
        sent[index] = sent.get(index, 0) + len(event.delta)
        if event.delta:
            told = None
            if event.logprobs is not None:
                final = event.output is not None
                take = tellers[index].take
                tokens = await asyncio.to_thread(take, event.logprobs, sent[index], final)
                told = shape.logprobs(tokens)
            yield chunk(index, shape.delta(event.delta), logprobs=told)
        if event.output is not None:
            yield chunk(index, shape.delta(""), event.output.finish_reason.value)
    if include_usage:
        yield {**head, "choices": [], "usage": _usage_of(generation)}


def usage(prompt_tokens: int, outputs: Sequence[Output]) -> dict[str, Any]:
    """What some texts cost together."""

    def total(name: str) -> int:
        return sum(getattr(output.usage, name) for output in outputs)

    completion_tokens = total("e_token")
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "rho_eos": {
            **{name: total(name) for name in _COUNTED},
            "tokens_per_forward": total("committed") / max(1, total("nfe")),
            "weights_version": min((output.weights_version for output in outputs), default=0),
        },
    }


def _usage_of(generation: Generation) -> dict[str, Any]:
    """What a request cost. A prompt counts once, however many texts were made of it."""
    outputs = generation.ordered()
    return usage(sum(each.usage.prompt_tokens for each in outputs[:: generation.n]), outputs)


def _head(generation: Generation, object: str) -> dict[str, Any]:
    return {
        "id": generation.id,
        "object": object,
        "created": generation.created,
        "model": generation.model,
    }
