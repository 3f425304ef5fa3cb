"""What a client may send: OpenAI's requests plus a field for every decoding parameter.

The decoding fields are made from the registered policies when a server is created, so that a
parameter is declared, described and checked in one place. What this server cannot honour is
refused, never ignored.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from rho_eos.decoding.params import DecodeParams
from rho_eos.prompts import Prompt
from rho_eos.server.config import MONTH
from rho_eos.server.errors import bad_request
from rho_eos.server.fields import described, given_parameters, is_whole, with_decoding_fields


def _whole(text: str) -> str:
    if not is_whole(text):
        raise ValueError("holds half a character (an unpaired surrogate)")
    return text


Text = Annotated[str, AfterValidator(_whole)]
MOST_ITEMS = 8192  # messages, parts of one, prompts
MOST_FIELDS = 500  # of an object; all policies together have far fewer parameters


class Strict(BaseModel):
    """No unknown fields, no guessing of types, no NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _few(cls, given: Any) -> Any:
        """One complaint, where there would be one for each of ten thousand unknown fields."""
        if isinstance(given, dict) and len(given) > MOST_FIELDS:
            raise ValueError(f"an object has {len(given)} fields, but may have {MOST_FIELDS}")
        return given


T = TypeVar("T")
#: Lists of which the first bad item is complained of, not each of a hundred thousand.
Ids = Annotated[list[int], Field(fail_fast=True)]
Items = Annotated[list[T], Field(fail_fast=True, max_length=MOST_ITEMS)]


class StreamOptions(Strict):
    include_usage: bool | None = Field(False, description="send a last chunk with the usage")


def unsupported(what: str) -> Any:
    return Field(None, description=f"not supported: {what}")


class _Common(Strict, ABC):
    """The fields that both endpoints share."""

    model: str = Field(description="the served model's name, see /v1/models")
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
    user: str | None = Field(None, description="taken, and not used")
    frequency_penalty: Any = unsupported("only 0")
    presence_penalty: Any = unsupported("only 0")
    logit_bias: Any = unsupported("only an empty one")

    #: field -> values that ask for nothing beyond what happens anyway
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "frequency_penalty": (0,),
        "presence_penalty": (0,),
        "logit_bias": ({},),
    }

    def check(self) -> None:
        """Refuse what cannot be honoured."""
        for field, values in self.neutral.items():
            value = getattr(self, field)
            if value is not None and not any(_same(value, neutral) for neutral in values):
                raise bad_request(
                    f"{field} is not supported by this server; leave it out", field, "unsupported"
                )
        if self.stream_options is not None and not self.stream:
            raise bad_request("stream_options goes with stream: true", "stream_options")
        if self.stream_mode == "denoise" and not self.stream:
            raise bad_request("stream_mode denoise goes with stream: true", "stream_mode")

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @abstractmethod
    def prompts(self) -> list[Prompt]:
        """What is to be completed: a chat asks one thing, a completion may ask several."""

    def decode_params(self) -> DecodeParams:
        return DecodeParams(**given_parameters(self), max_new_tokens=self._limit())

    def choices(self) -> Iterator[tuple[Prompt, DecodeParams]]:
        """One request for the engine per text asked for, in the order of the choices."""
        params = self.decode_params()
        for prompt in self.prompts():
            for offset in range(self.n or 1):
                yield prompt, params.replaced(seed=params.seed + offset)

    def _limit(self) -> Any:
        """OpenAI has two names for it."""
        first, second = self.max_tokens, self.max_completion_tokens
        if first is not None and second is not None and first != second:
            raise bad_request(
                f"max_tokens is {first!r} and max_completion_tokens {second!r}; give one of them",
                "max_tokens",
            )
        return second if first is None else first


class TextPart(Strict):
    type: Literal["text"]
    text: Text


class ChatMessage(Strict):
    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Items[TextPart]
    #: Null in the answers of OpenAI's own server, which clients send back as they came.
    refusal: None = None
    tool_calls: None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class Chat(_Common):
    messages: Items[ChatMessage] = Field(description="the conversation so far")
    logprobs: Any = unsupported("tokens are not committed in the order of the text")
    top_logprobs: Any = unsupported("as logprobs")
    tools: Any = unsupported("tools")
    tool_choice: Any = unsupported("tools")
    functions: Any = unsupported("tools")
    function_call: Any = unsupported("tools")
    response_format: Any = unsupported("only text")

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **_Common.neutral,
        "logprobs": (False,),
        "top_logprobs": (),
        "tools": ([],),
        "tool_choice": ("none",),
        "functions": ([],),
        "function_call": ("none",),
        "response_format": ({"type": "text"},),
    }

    def prompts(self) -> list[Prompt]:
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
    prompt: Text | Items[Text] | Ids | Items[Ids] = Field(
        description="a text, token ids, or several of either; no chat template is applied"
    )
    logprobs: Any = unsupported("tokens are not committed in the order of the text")
    best_of: Any = unsupported("only 1")
    echo: Any = unsupported("only false")
    suffix: Any = unsupported("text is generated behind the prompt")

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **_Common.neutral,
        "logprobs": (),
        "best_of": (1,),
        "echo": (False,),
        "suffix": ("",),
    }

    def prompts(self) -> list[Prompt]:
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


def _same(value: Any, neutral: Any) -> bool:
    """Equal, where true is not 1 and false is not 0."""
    return bool(value == neutral) and isinstance(value, bool) == isinstance(neutral, bool)
