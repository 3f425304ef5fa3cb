"""What a client gets back: OpenAI's objects, with what the generation cost as an extension."""

import asyncio
from typing import Any

from rho_eos.base.outputs import Output
from rho_eos.engine.generation import Generation
from rho_eos.server.logprobs import Detokenize, Told, for_chat, for_completion, tell


class ChatShape:
    """How a chat lays out its answers; the two endpoints differ in nothing else."""

    id_prefix = "chatcmpl"
    object = "chat.completion"
    chunk_object = "chat.completion.chunk"
    #: What a stream sends before the first text.
    opening: dict[str, Any] = {"delta": {"role": "assistant", "content": ""}}

    def choice(self, text: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def delta(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text} if text else {}}

    logprobs = staticmethod(for_chat)


class CompletionShape:
    """How a completion lays out its answers."""

    id_prefix = "cmpl"
    object = "text_completion"
    chunk_object = "text_completion"
    opening: dict[str, Any] = {}

    def choice(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def delta(self, text: str) -> dict[str, Any]:
        return {"text": text}

    logprobs = staticmethod(for_completion)


Shape = ChatShape | CompletionShape


async def whole_answer(
    shape: Shape, generation: Generation, detokenize: Detokenize
) -> dict[str, Any]:
    outputs = generation.ordered()
    told: list[list[Told] | None] = [None] * len(outputs)
    if any(output.logprobs is not None for output in outputs):
        # Off the event loop: a tokenizer that encodes a long prompt makes everybody wait.
        told = await asyncio.to_thread(lambda: [tell(output, detokenize) for output in outputs])
    return {
        **_head(generation, shape.object),
        "choices": [
            {
                "index": index,
                **shape.choice(output.text),
                **({"gaps": output.gaps} if output.gaps else {}),
                "logprobs": None if tokens is None else shape.logprobs(tokens),
                "finish_reason": output.finish_reason.value,
            }
            for index, (output, tokens) in enumerate(zip(outputs, told, strict=True))
        ],
        "usage": usage_of(generation),
        **({"note": generation.note} if generation.note else {}),
    }


def chunk(
    shape: Shape,
    generation: Generation,
    index: int,
    content: dict[str, Any],
    finish_reason: str | None = None,
    logprobs: dict[str, Any] | None = None,
) -> dict[str, Any]:
    choice = {"index": index, **content, "logprobs": logprobs, "finish_reason": finish_reason}
    return {**_head(generation, shape.chunk_object), "choices": [choice]}


def usage_chunk(shape: Shape, generation: Generation) -> dict[str, Any]:
    head = _head(generation, shape.chunk_object)
    return {**head, "choices": [], "usage": usage_of(generation)}


def usage_of(generation: Generation) -> dict[str, Any]:
    """What the whole request cost. A prompt counts once, however many texts were made of it."""
    outputs = generation.ordered()
    prompts = outputs[:: generation.n]
    return usage(sum(output.usage.prompt_tokens for output in prompts), outputs)


def usage(prompt_tokens: int, outputs: list[Output]) -> dict[str, Any]:
    def total(name: str) -> int:
        return sum(getattr(output.usage, name) for output in outputs)

    completion_tokens = total("e_token")
    counted = (
        *("n_token", "nfe", "positions_evaluated", "expansions", "contractions"),
        *("positions_exact", "refreshes"),
    )
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "rho_eos": {
            **{name: total(name) for name in counted},
            "tokens_per_forward": total("committed") / max(1, total("nfe")),
        },
    }


def _head(generation: Generation, object: str) -> dict[str, Any]:
    return {
        "id": generation.id,
        "object": object,
        "created": generation.created,
        "model": generation.model,
    }
