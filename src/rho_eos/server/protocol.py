"""What a client may send: OpenAI's requests plus a field for every decoding parameter.

The decoding fields are made from the registered policies when a server is created, so that a
parameter is declared, described and checked in one place. What this server cannot honour is
refused, never ignored.
"""

from abc import ABC, abstractmethod
from typing import Any, Literal

from pydantic import Field

from rho_eos.server.config import MONTH
from rho_eos.server.errors import bad_request
from rho_eos.server.fields import described, given_parameters, with_decoding_fields
from rho_eos.server.parts import (
    ChatMessage,
    Ids,
    Items,
    Neutral,
    ResponseFormat,
    StreamOptions,
    Strict,
    Text,
    unsupported,
    unused,
)
from rho_eos.text.ask import Ask
from rho_eos.text.prompts import Prompt


class _Common(Strict, ABC):
    """The fields that both endpoints share."""

    model: str | None = Field(
        None, description="the served model's name, see /v1/models; there is only one"
    )
    max_tokens: Any = described("max_new_tokens")
    max_completion_tokens: Any = described("max_new_tokens", "the same as max_tokens")
    n: int | None = Field(1, description="texts per prompt; the i-th has seed + i", ge=1)
    stream: bool | None = Field(False, description="send the text while it becomes final")
    stream_options: StreamOptions | None = None
    stream_mode: Literal["text", "denoise"] | None = Field(
        "text", description="text: deltas of the final prefix; denoise: an event for every step"
    )
    deadline_seconds: float | None = Field(
        None,
        description="give up after this time, if the server does not do so earlier",
        gt=0,
        le=MONTH,
    )
    template: Text | Ids | None = Field(
        None, description="a text with gaps (___) to fill, as the answer or behind the prompt"
    )
    #: What changes no answer.
    user: str | None = unused()
    safety_identifier: str | None = unused()
    prompt_cache_key: str | None = unused()
    prompt_cache_retention: str | None = unused()
    service_tier: str | None = unused()
    metadata: dict[str, Any] | None = unused()
    #: What would change answers, or what a client would wait for in vain.
    store: Any = unsupported("only false", False)
    frequency_penalty: Any = unsupported("only 0", 0)
    presence_penalty: Any = unsupported("only 0", 0)
    repetition_penalty: Any = unsupported("only 1", 1)
    min_p: Any = unsupported("only 0", 0)
    ignore_eos: Any = unsupported("only false", False)
    logit_bias: Any = unsupported("only an empty one", {})

    def check(self) -> None:
        """Refuse what cannot be honoured."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if not all(each.allows(value) for each in field.metadata if isinstance(each, Neutral)):
                raise bad_request(
                    f"{name} is not supported by this server; leave it out", name, "unsupported"
                )
        if self.stream_options is not None and not self.stream:
            raise bad_request("stream_options goes with stream: true", "stream_options")
        if self.stream_mode == "denoise" and not self.stream:
            raise bad_request("stream_mode denoise goes with stream: true", "stream_mode")
        if self.stream_mode == "denoise" and self.wanted_logprobs() is not None:
            raise bad_request("logprobs goes with stream_mode text", "logprobs")

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @abstractmethod
    def prompts(self) -> list[Prompt | None]:
        """What is to be completed: a chat asks one thing, a completion may ask several."""

    def wanted_schema(self) -> dict[str, Any] | None:
        """Of an answer that is to be JSON, its schema."""
        return None

    @abstractmethod
    def wanted_logprobs(self) -> int | None:
        """With how many alternatives log-probabilities are asked for; None: they are not."""

    def asks(self, id: str) -> list[Ask]:
        """What is asked for: an ask for each prompt, with what the body says and nothing else."""
        self.check()
        params = {
            **given_parameters(self),
            "max_new_tokens": self._limit(),
            "logprobs": self.wanted_logprobs(),
        }
        return [
            Ask(
                prompt,
                params,
                id=f"{id}-{index}",
                n=self.n or 1,
                raw=True,
                suffix=getattr(self, "suffix", None),
                template=self.template,
                schema=self.wanted_schema(),
            )
            for index, prompt in enumerate(self.prompts())
        ]

    def _limit(self) -> Any:
        """OpenAI has two names for it."""
        first, second = self.max_tokens, self.max_completion_tokens
        if first is not None and second is not None and first != second:
            raise bad_request(
                f"max_tokens is {first!r} and max_completion_tokens {second!r}; give one of them",
                "max_tokens",
            )
        return second if first is None else first


class Chat(_Common):
    messages: Items[ChatMessage] = Field(description="the conversation so far")
    logprobs: bool | None = Field(
        None, description="the log-probability of each token when it was committed"
    )
    top_logprobs: int | None = Field(
        None, description="with logprobs: also so many of the likeliest tokens", ge=0, le=20
    )
    parallel_tool_calls: bool | None = unused()
    reasoning_effort: str | None = unused()
    verbosity: str | None = unused()
    tools: Any = unsupported("tools", [])
    tool_choice: Any = unsupported("tools", "none", "auto")
    functions: Any = unsupported("tools", [])
    function_call: Any = unsupported("tools", "none", "auto")
    response_format: ResponseFormat | None = Field(
        None, description="text, or JSON of a flat schema; not supported: json_object"
    )
    modalities: Any = unsupported("only text", ["text"])
    audio: Any = unsupported("only text")
    prediction: Any = unsupported("predicted outputs")
    web_search_options: Any = unsupported("searching the web")
    moderation: Any = unsupported("moderation")
    prompt_cache_options: Any = unsupported("caching prompts")

    def check(self) -> None:
        super().check()
        if self.top_logprobs and not self.logprobs:
            raise bad_request("top_logprobs goes with logprobs: true", "top_logprobs")

    def wanted_schema(self) -> dict[str, Any] | None:
        asked = self.response_format
        if asked is None or asked.type == "text":
            return None
        if asked.type == "json_object":
            raise bad_request(
                "response_format json_object is not supported: an answer in JSON is a form, so its "
                "keys must be known; send a json_schema",
                "response_format",
                "unsupported",
            )
        if asked.json_schema is None:
            raise bad_request("response_format.json_schema is missing", "response_format")
        return asked.json_schema.definition

    def wanted_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    def prompts(self) -> list[Prompt | None]:
        roles = {"developer": "system"}
        return [
            {
                "messages": [
                    {"role": roles.get(message.role, message.role), "content": message.text}
                    for message in self.messages
                ]
            }
        ]


class Completion(_Common):
    prompt: Text | Items[Text] | Ids | Items[Ids] | None = Field(
        None,
        description="a text, token ids, or several of either; no chat template is applied. "
        "It may be left out where there is a template",
    )
    suffix: Text | None = Field(None, description="the text behind what is to be generated")
    logprobs: int | None = Field(
        None,
        description="the log-probability of each token when it was committed, "
        "and of so many of the likeliest ones",
        ge=0,
        le=20,
    )
    best_of: Any = unsupported("only 1", 1)
    echo: Any = unsupported("only false", False)

    def wanted_logprobs(self) -> int | None:
        return self.logprobs

    def prompts(self) -> list[Prompt | None]:
        if self.prompt is None:
            if self.template is None:
                raise bad_request("prompt is missing", "prompt")
            return [None]
        if isinstance(self.prompt, str):
            return [{"prompt": self.prompt}]
        if self.prompt and isinstance(self.prompt[0], int):
            return [{"prompt_token_ids": self.prompt}]
        return [
            {"prompt" if isinstance(each, str) else "prompt_token_ids": each}
            for each in self.prompt
        ]


AnyRequest = Chat | Completion


def request_models() -> tuple[type[Chat], type[Completion]]:
    """The bodies of the two endpoints, with the parameters of all policies registered by now."""
    return (
        with_decoding_fields("ChatRequest", Chat),
        with_decoding_fields("CompletionRequest", Completion),
    )
