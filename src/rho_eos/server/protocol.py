"""What a client may send: OpenAI's requests plus a field for every decoding parameter.

The decoding fields are made from the registered policies when a server is created, so that a
parameter is declared, described and checked in one place. What this server cannot honour is
refused, never ignored.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from rho_eos.server.config import MONTH
from rho_eos.server.errors import bad_request
from rho_eos.server.fields import Ids, Items, Strict, given_parameters, with_decoding_fields
from rho_eos.server.tools import Call, Choice, Tool, Toolbox, answered, streamed
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
    guided_json: dict[str, Any] | str | None = Field(
        None, description="a JSON schema that the text is valid for (vLLM's field)"
    )
    guided_regex: str | None = Field(None, description="a regular expression of the whole text")
    guided_choice: Items[str] | None = Field(None, description="texts, one of which it is")
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

    def wanted_forms(self) -> list[dict[str, Any]]:
        """The forms that the text is to have; more than one is too many."""
        schema = self.guided_json
        if isinstance(schema, str):
            try:
                schema = json.loads(schema)
            except (ValueError, RecursionError):
                raise bad_request("guided_json is no JSON", "guided_json") from None
        asked = {"schema": schema, "regex": self.guided_regex, "choices": self.guided_choice}
        return [{name: given} for name, given in asked.items() if given is not None]

    def answered(self, answer: dict[str, Any]) -> dict[str, Any]:
        """A whole answer, as this body asks for it."""
        return answer

    def streamed(self, events: AsyncIterator[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
        """The same of a stream."""
        return events

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
        forms = self.wanted_forms()
        if len(forms) > 1:
            raise bad_request(
                "an answer has one form: give one of response_format, tools and the guided fields",
                "response_format",
            )
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
                constraint=forms[0] if forms else None,
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

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[str | Items[TextPart] | None, BeforeValidator(_text_only)] = None
    tool_calls: Items[Call] | None = Field(None, description="of an earlier answer")
    # `parsed` is the content of an answer in JSON once more, as an object.
    unused = frozenset({"name", "parsed", "tool_call_id"})

    @field_validator("content")
    @classmethod
    def _check_content(cls, content: Any, known: ValidationInfo) -> Any:
        if content is None and known.data.get("role") != "assistant":
            raise ValueError("takes a text or a list of text parts")
        return content

    @model_validator(mode="after")
    def _check_given(self) -> "ChatMessage":
        if self.role != "assistant" and "content" not in self.model_fields_set:
            raise ValueError("a message takes a content")
        return self

    def as_dict(self) -> dict[str, str]:
        """The message as chat templates know it."""
        content = self.content or ""
        if not isinstance(content, str):
            content = "".join(part.text for part in content)
        content += "\n".join(call.text for call in self.tool_calls or ())
        if self.role == "tool":  # which few chat templates know
            return {"role": "user", "content": f"The function's result: {content}"}
        return {"role": "system" if self.role == "developer" else self.role, "content": content}


class JsonSchema(Strict):
    unused = frozenset({"name", "description", "strict"})
    definition: dict[str, Any] = Field(
        alias="schema", description="what a regular expression can promise, nested as you like"
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
        None, description="text, JSON of a schema, or any JSON object (nested two deep)"
    )
    tools: Items[Tool] | None = Field(None, description="functions that the answer may call")
    tool_choice: Choice | None = Field(
        None, description="whether it calls one: none, auto, required, or a function by its name"
    )

    @cached_property
    def toolbox(self) -> Toolbox | None:
        """The tools that its answer may call, if any."""
        if not self.tools:
            if self.tool_choice not in (None, "none", "auto"):
                raise bad_request("tool_choice goes with tools", "tool_choice")
            return None
        return None if self.tool_choice == "none" else Toolbox(self.tools, self.tool_choice)

    def prompts(self) -> list[Prompt | None]:
        messages = [message.as_dict() for message in self.messages]
        return [{"messages": self.toolbox.told(messages) if self.toolbox else messages}]

    def answered(self, answer: dict[str, Any]) -> dict[str, Any]:
        return answered(answer) if self.toolbox else answer

    def streamed(self, events: AsyncIterator[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
        return streamed(events) if self.toolbox else events

    def wanted_logprobs(self) -> int | None:
        if self.top_logprobs and not self.logprobs:
            raise bad_request("top_logprobs goes with logprobs: true", "top_logprobs")
        return (self.top_logprobs or 0) if self.logprobs else None

    def wanted_forms(self) -> list[dict[str, Any]]:
        forms, asked = super().wanted_forms(), self.response_format
        if self.toolbox:
            forms.append({"regex": self.toolbox.regex})
        if asked is None or asked.type == "text":
            return forms
        if asked.type == "json_object":
            return [*forms, {"schema": {"type": "object"}}]
        if asked.json_schema is None:
            raise bad_request("response_format.json_schema is missing", "response_format")
        return [*forms, {"schema": asked.json_schema.definition}]


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
