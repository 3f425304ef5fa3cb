"""What a client may send: OpenAI's requests plus a field for every decoding parameter.

The decoding fields are made from `DecodeParams` itself, so that a parameter is declared, described
and checked in one place. What this server cannot honour is refused, never ignored.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from rho_eos.config import EXPANSIONS, POLICIES, PRESETS, SIGNALS, DecodeParams
from rho_eos.prompts import Prompt
from rho_eos.server.errors import bad_request

#: Parameters that go by another name here: `max_tokens`, and `stream_mode` for a trace.
_RENAMED = ("max_new_tokens", "trace")
_CHOICES = {
    "policy": POLICIES,
    "preset": tuple(PRESETS),
    "signal": SIGNALS,
    "expansion": EXPANSIONS,
}
_DECODING = {
    field.name: field for field in dataclasses.fields(DecodeParams) if field.name not in _RENAMED
}


def _whole(text: str) -> str:
    """JSON can spell half a character (an unpaired surrogate), which no tokenizer can read."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("holds half a character (an unpaired surrogate)") from None
    return text


Text = Annotated[str, AfterValidator(_whole)]


class Strict(BaseModel):
    """No unknown fields, no guessing of types, no NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def _with_decoding_fields(name: str, base: type[BaseModel]) -> Any:
    fields: dict[str, Any] = {}
    for field in _DECODING.values():
        kind: Any = str | list[str] if field.name == "stop" else field.type
        default: Any = field.default
        choices = _CHOICES.get(field.name)
        info = Field(
            default=list(default) if field.name == "stop" else default,
            description=field.metadata["help"],
            json_schema_extra={"enum": [*choices, None]} if choices else None,
        )
        fields[field.name] = (kind | None, info)
    return create_model(name, __base__=base, **fields)


class StreamOptions(Strict):
    include_usage: bool | None = Field(False, description="send a last chunk with the usage")


def unsupported(what: str) -> Any:
    return Field(None, description=f"not supported: {what}")


class _Common(Strict, ABC):
    """The fields that both endpoints share."""

    model: str = Field(description="the served model's name, see /v1/models")
    max_tokens: int | None = Field(None, description="longest canvas (L_max)", ge=1)
    max_completion_tokens: int | None = Field(None, description="the same", ge=1)
    n: int | None = Field(1, description="texts per prompt; the i-th has seed + i", ge=1)
    stream: bool | None = Field(False, description="send the text while it becomes final")
    stream_options: StreamOptions | None = None
    stream_mode: Literal["text", "denoise"] | None = Field(
        "text", description="text: deltas of the final prefix; denoise: an event for every step"
    )
    deadline_seconds: float | None = Field(
        None, description="give up after this time, if the server does not do so earlier", gt=0
    )
    user: str | None = Field(None, description="taken, and not used")
    top_p: Any = unsupported("only 1")
    frequency_penalty: Any = unsupported("only 0")
    presence_penalty: Any = unsupported("only 0")
    logit_bias: Any = unsupported("only an empty one")

    #: field -> values that ask for nothing beyond what happens anyway
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "top_p": (1,),
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
        given = {
            name: getattr(self, name)
            for name, field in _DECODING.items()
            if name in self.model_fields_set
            # null means "not given", except where none is a value of the parameter
            and (getattr(self, name) is not None or type(None) in get_args(field.type))
        }
        limit = self._limit()
        if limit is not None:
            given["max_new_tokens"] = limit
            # Who only says how long a text may become did not ask for a longer start.
            given.setdefault("initial_length", min(DecodeParams().initial_length, limit))
        return DecodeParams.from_mapping(given)

    def choices(self) -> Iterator[tuple[Prompt, DecodeParams]]:
        """One request for the engine per text asked for, in the order of the choices."""
        params = self.decode_params()
        for prompt in self.prompts():
            for offset in range(self.n or 1):
                yield prompt, dataclasses.replace(params, seed=params.seed + offset)

    def _limit(self) -> int | None:
        given = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(given) > 1:
            raise bad_request(
                f"max_tokens is {self.max_tokens} and max_completion_tokens "
                f"{self.max_completion_tokens}; give one of them",
                "max_tokens",
            )
        return given.pop() if given else None


class TextPart(Strict):
    type: Literal["text"]
    text: Text


class ChatMessage(Strict):
    role: Literal["system", "developer", "user", "assistant"]
    content: Text | list[TextPart]
    #: Null in the answers of OpenAI's own server, which clients send back as they came.
    refusal: None = None
    tool_calls: None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class _Chat(_Common):
    messages: list[ChatMessage] = Field(description="the conversation so far")
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


class _Completion(_Common):
    prompt: Text | list[Text] | list[int] | list[list[int]] = Field(
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


ChatRequest = _with_decoding_fields("ChatRequest", _Chat)
CompletionRequest = _with_decoding_fields("CompletionRequest", _Completion)
AnyRequest = _Chat | _Completion


def _same(value: Any, neutral: Any) -> bool:
    """Equal, where true is not 1 and false is not 0."""
    return bool(value == neutral) and isinstance(value, bool) == isinstance(neutral, bool)
