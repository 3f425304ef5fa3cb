"""What requests are made of: strict objects, texts, messages and the form of an answer."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from rho_eos.text.user_text import is_whole


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
    include_obfuscation: bool | None = Field(None, description="taken; nothing is ever padded")


@dataclass(frozen=True, slots=True)
class Neutral:
    """Of a field that is not supported: values that ask for nothing beyond what happens anyway."""

    values: tuple[Any, ...]

    def allows(self, value: Any) -> bool:
        """Whether it is one of them, where true is not 1 and false is not 0."""
        same = (each for each in self.values if isinstance(each, bool) == isinstance(value, bool))
        return value is None or any(value == each for each in same)


def unsupported(what: str, *neutral: Any) -> Any:
    """A field that is refused, unless it has one of the `neutral` values."""
    field: Any = Field(None, description=f"not supported: {what}")
    field.metadata.append(Neutral(neutral))
    return field


def unused() -> Any:
    return Field(None, description="taken, and not used")


class TextPart(Strict):
    type: Literal["text"]
    text: Text


def _text_only(content: Any) -> Any:
    """Say that images and the like are not read, rather than what a text part looks like."""
    for part in content if isinstance(content, list) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind != "text":
            what = "images" if "image" in kind else "parts other than text"
            raise ValueError(f"{what} are not supported: this model reads text only")
    return content


def _nothing(value: Any) -> Any:
    """Null, or nothing but nulls: what answers hold where other servers' answers hold more."""
    inside = value.values() if isinstance(value, dict) else value
    if value is None or (isinstance(value, dict | list) and all(each is None for each in inside)):
        return None
    raise ValueError("is not supported by this server; leave it out")


#: Clients send earlier answers back as they came, with fields that were null or empty.
Empty = Annotated[Any, AfterValidator(_nothing)]


class ChatMessage(Strict):
    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[Text | Items[TextPart] | None, BeforeValidator(_text_only)]
    name: str | None = unused()
    refusal: Empty = None
    tool_calls: Empty = None
    function_call: Empty = None
    audio: Empty = None
    annotations: Empty = None
    reasoning_content: Empty = None
    parsed: Any = unused()  # the content of an answer in JSON once more, as an object
    provider_specific_fields: Empty = None

    @field_validator("content")
    @classmethod
    def _check_content(cls, content: Any, known: ValidationInfo) -> Any:
        if content is None and known.data.get("role") != "assistant":
            raise ValueError("takes a text or a list of text parts")
        return content

    @property
    def text(self) -> str:
        if self.content is None:
            return ""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class JsonSchema(Strict):
    name: str | None = unused()
    description: str | None = unused()
    strict: bool | None = unused()
    definition: dict[str, Any] = Field(
        alias="schema", description="a flat object: strings, numbers, booleans and enums"
    )


class ResponseFormat(Strict):
    type: Literal["text", "json_schema", "json_object"]
    json_schema: JsonSchema | None = None
