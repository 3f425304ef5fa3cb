"""What a client may send: OpenAI's requests plus a field for every decoding parameter.

The decoding fields are made from the registered policies when a server is created, so that a
parameter is declared, described and checked in one place. What this server cannot honour is
refused, never ignored.
"""

from abc import ABC, abstractmethod
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from rho_eos.server.config import MONTH
from rho_eos.server.errors import bad_request
from rho_eos.server.fields import Ids, Items, Strict, given_parameters, with_decoding_fields
from rho_eos.text.ask import Ask
from rho_eos.text.prompts import Prompt, as_list


class StreamOptions(Strict):
    include_usage: bool | None = Field(False, description="send a last chunk with the usage")
    include_obfuscation: bool | None = Field(None, description="taken; nothing is ever padded")


class _Common(Strict, ABC):
    """The fields that both endpoints share."""

    model: str | None = Field(
        None, description="the served model's name, see /v1/models; there is only one"
    )
    max_completion_tokens: Any = Field(None, description="the same as max_tokens")
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
    template: str | Ids | None = Field(
        None, description="a text with gaps (___) to fill, as the answer or behind the prompt"
    )
    unused = frozenset(
        {
            *("user", "safety_identifier", "service_tier", "metadata"),
            *("prompt_cache_key", "prompt_cache_retention"),
            *("parallel_tool_calls", "reasoning_effort", "verbosity"),
        }
    )

    @abstractmethod
    def prompts(self) -> list[Prompt | None]:
        """What is to be completed: a chat asks one thing, a completion may ask several."""

    @abstractmethod
    def wanted_logprobs(self) -> int | None:
        """With how many alternatives log-probabilities are asked for; None: they are not."""

    def wanted_schema(self) -> dict[str, Any] | None:
        """The schema of an answer that is to be JSON."""
        return None

    def asks(self, id: str) -> list[Ask]:
        """An ask for each prompt, with what the body says and nothing else."""
        logprobs = self.wanted_logprobs()
        if self.stream_options is not None and not self.stream:
            raise bad_request("stream_options goes with stream: true", "stream_options")
        if self.stream_mode == "denoise" and not self.stream:
            raise bad_request("stream_mode denoise goes with stream: true", "stream_mode")
        if self.stream_mode == "denoise" and logprobs is not None:
            raise bad_request("logprobs goes with stream_mode text", "logprobs")
        params = {**given_parameters(self), "logprobs": logprobs}
        first, second = params.get("max_new_tokens"), self.max_completion_tokens
        if first is not None and second is not None and first != second:
            raise bad_request(
                f"max_tokens is {first!r} and max_completion_tokens {second!r}; give one of them",
                "max_tokens",
            )
        params["max_new_tokens"] = second if first is None else first
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


def _text_only(content: Any) -> Any:
    """Say that images and the like are not read, rather than what a text part looks like."""
    for part in content if isinstance(content, list) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind != "text":
            what = "images" if "image" in kind else "parts other than text"
            raise ValueError(f"{what} are not supported: this model reads text only")
    return content


class TextPart(Strict):
    type: Literal["text"]
    text: str


class ChatMessage(Strict):
    """A message of a conversation. Earlier answers may be sent back as clients dump them."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str | Items[TextPart] | None, BeforeValidator(_text_only)]
    # `parsed` is the content of an answer in JSON once more, as an object.
    unused = frozenset({"name", "parsed"})

    @field_validator("content")
    @classmethod
    def _check_content(cls, content: Any, known: ValidationInfo) -> Any:
        if content is None and known.data.get("role") != "assistant":
            raise ValueError("takes a text or a list of text parts")
        return content

    def as_dict(self) -> dict[str, str]:
        """The message as chat templates know it."""
        content = self.content or ""
        if not isinstance(content, str):
            content = "".join(part.text for part in content)
        return {"role": "system" if self.role == "developer" else self.role, "content": content}


class JsonSchema(Strict):
    unused = frozenset({"name", "description", "strict"})
    definition: dict[str, Any] = Field(
        alias="schema", description="a flat object: strings, numbers, booleans and enums"
    )


class ResponseFormat(Strict):
    type: Literal["text", "json_schema", "json_object"]
    json_schema: JsonSchema | None = None


class Chat(_Common):
    messages: Items[ChatMessage] = Field(description="the conversation so far")
    logprobs: bool | None = Field(
        None, description="the log-probability of each token when it was committed"
    )
    top_logprobs: int | None = Field(
        None, description="with logprobs: also so many of the likeliest tokens", ge=0, le=20
    )
    response_format: ResponseFormat | None = Field(
        None, description="text, or JSON of a flat schema; not supported: json_object"
    )

    def prompts(self) -> list[Prompt | None]:
        return [{"messages": [message.as_dict() for message in self.messages]}]

    def wanted_logprobs(self) -> int | None:
        if self.top_logprobs and not self.logprobs:
            raise bad_request("top_logprobs goes with logprobs: true", "top_logprobs")
        return (self.top_logprobs or 0) if self.logprobs else None

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


class Completion(_Common):
    prompt: str | Items[str] | Ids | Items[Ids] | None = Field(
        None,
        description="a text, token ids, or several of either; no chat template is applied. "
        "It may be left out where there is a template",
    )
    suffix: str | None = Field(None, description="the text behind what is to be generated")
    echo: bool | None = Field(
        False, description="with logprobs and max_tokens: 0, score the prompt and generate nothing"
    )
    score_method: Literal["bound", "chain", "pseudo"] | None = Field(
        "chain", description="with echo: which log-probabilities, see docs/scores.md"
    )
    score_draws: int | None = Field(
        None, description="with echo and score_method bound: masks that are drawn", ge=1, le=4096
    )
    logprobs: int | None = Field(
        None,
        description="the log-probability of each token when it was committed, "
        "and of so many of the likeliest ones",
        ge=0,
        le=20,
    )

    def prompts(self) -> list[Prompt | None]:
        if self.prompt is None and self.template is None:
            raise bad_request("prompt is missing", "prompt")
        return [None] if self.prompt is None else as_list(self.prompt)

    def wanted_logprobs(self) -> int | None:
        return self.logprobs


AnyRequest = Chat | Completion


def request_models() -> tuple[type[Chat], type[Completion]]:
    """The bodies of the two endpoints, with the parameters of all policies registered by now."""
    return (
        with_decoding_fields("ChatRequest", Chat),
        with_decoding_fields("CompletionRequest", Completion),
    )
