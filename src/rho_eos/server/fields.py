"""What the fields of a request are made of, and a field for each decoding parameter.

The fields of decoding parameters describe them for the OpenAPI schema and let every value pass:
`DecodeParams` checks it, as everywhere, and says what is wrong in its own words.
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, Union

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from rho_eos.base.errors import UserError
from rho_eos.decoding.schema import AXES, Parameter, choices_of, parameters
from rho_eos.text.user_text import is_whole

#: What HTTP calls a decoding parameter, where that is not its own name; None: it is no field.
#: `stream_mode` asks for what a trace holds, and the two endpoints spell `logprobs` differently.
NAMES: Mapping[str, str | None] = {
    "max_new_tokens": "max_tokens",
    "trace": None,
    "logprobs": None,
}
#: Values with which clients of other servers say "not given", where ours takes null.
_NOT_GIVEN: Mapping[str, int] = {"top_k": -1}
MOST_ITEMS = 8192  # messages, parts of one message, prompts
MOST_FIELDS = 500  # of an object; all policies together have far fewer parameters
HALF = "holds half a character (an unpaired surrogate)"

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class Strict(BaseModel):
    """An object without unknown fields and NaN, whose types are not guessed."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _few(cls, given: Any) -> Any:
        """Complain once, where pydantic would do so for each of ten thousand unknown fields."""
        if isinstance(given, dict) and len(given) > MOST_FIELDS:
            raise ValueError(f"an object has {len(given)} fields, but may have {MOST_FIELDS}")
        return given


def _whole(text: str) -> str:
    if not is_whole(text):
        raise ValueError(HALF)
    return text


Text = Annotated[str, AfterValidator(_whole)]
# Of these lists only the first bad item is complained of, not each of a hundred thousand.
Ids = Annotated[list[int], Field(fail_fast=True)]
Items = Annotated[list[T], Field(fail_fast=True, max_length=MOST_ITEMS)]


def unused() -> Any:
    """A field that changes no answer."""
    return Field(None, description="taken, and not used")


def unsupported(what: str, *neutral: Any, blank: bool = False) -> Any:
    """A field that is refused unless it asks for nothing.

    Args:
        what: What is not supported, for the description of the field.
        neutral: Values that ask for what happens anyway. True is not 1 here, and false is not 0.
        blank: Also take lists and objects that hold nothing but nulls.
    """

    def check(value: Any) -> Any:
        same = (each for each in neutral if isinstance(each, bool) == isinstance(value, bool))
        held = value.values() if isinstance(value, dict) else value
        empty = blank and isinstance(value, dict | list) and all(each is None for each in held)
        if value is None or empty or any(value == each for each in same):
            return value
        raise PydanticCustomError("unsupported", "is not supported by this server; leave it out")

    field: Any = Field(None, description=f"not supported: {what}")
    field.metadata.append(AfterValidator(check))
    return field


def described(name: str, help: str = "") -> Any:
    """A field that takes anything, with the description of a decoding parameter in the schema."""

    def describe(schema: dict[str, Any]) -> None:
        parameter = parameters()[name]
        schema |= {"description": help or parameter.help, **_json_schema(parameter)}

    return Field(None, json_schema_extra=describe)


def with_decoding_fields(name: str, base: type[M]) -> type[M]:
    """The request `base` with a field for each decoding parameter that is registered by now."""
    fields: dict[str, Any] = {}
    for parameter in parameters().values():
        if parameter.name in NAMES:
            continue
        if parameter.name in base.model_fields or hasattr(base, parameter.name):
            raise UserError(
                f"{next(iter(parameter.owners))} has a parameter {parameter.name!r}, but requests "
                "over HTTP have a field of that name already; call it otherwise"
            )
        fields[parameter.name] = (Any, described(parameter.name))
    return create_model(name, __base__=base, **fields)


def given_parameters(request: BaseModel) -> dict[str, Any]:
    """The decoding parameters that a request holds, by the names they have in the library."""
    names = (parameters().keys() - NAMES.keys()) & request.model_fields_set
    given = {name: getattr(request, name) for name in names}
    for name, value in given.items():
        texts = value if isinstance(value, list) else [value]
        if not all(is_whole(text) for text in texts if isinstance(text, str)):
            raise UserError(f"{name}: {HALF}", name)
        if type(value) is int and value == _NOT_GIVEN.get(name):
            given[name] = None
    return given


def _json_schema(parameter: Parameter) -> dict[str, Any]:
    """What its values look like in JSON: whatever one of its owners takes, or null."""
    owners = list(parameter.owners.values())
    if parameter.name in AXES:
        names = {"type": "string", "enum": list(choices_of(parameter.name))}
        return {"anyOf": [names, {"type": "null"}]}
    taken = (Annotated[field.annotation, None, *field.metadata] for field in owners)
    anything: Any = Union[(*taken, None)]
    kinds = TypeAdapter(anything).json_schema()["anyOf"]
    items = [kind["items"] for kind in kinds if kind.get("type") == "array"]
    schema: dict[str, Any] = {"anyOf": [*items, *kinds]}  # one value stands for a list of one
    default = owners[0].default
    if all(field.default == default for field in owners):
        schema["default"] = list(default) if isinstance(default, tuple) else default
    return schema
