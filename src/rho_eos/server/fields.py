"""What the fields of a request are made of, and a field for each decoding parameter.

The fields of decoding parameters describe them for the OpenAPI schema and let every value pass:
`DecodeParams` checks it, as everywhere, and says what is wrong in its own words.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, create_model, model_validator

from rho_eos.base.errors import UserError
from rho_eos.base.settings import item_of
from rho_eos.decoding.schema import AXES, Parameter, choices_of, parameters
from rho_eos.text.user_text import is_whole

#: What HTTP calls a decoding parameter, where that is not its own name; None: it is no field.
#: `stream_mode` asks for what a trace holds, and the two endpoints spell `logprobs` differently.
NAMES: Mapping[str, str | None] = {
    "max_new_tokens": "max_tokens",
    "trace": None,
    "logprobs": None,
}
#: Fields of OpenAI's that this server cannot honour, each with the values that ask for nothing.
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("store", "ignore_eos", "echo"), (False,)),
    **dict.fromkeys(("frequency_penalty", "presence_penalty", "min_p"), (0,)),
    **dict.fromkeys(("repetition_penalty", "best_of"), (1,)),
    **dict.fromkeys(("functions", "annotations"), ([],)),
    **dict.fromkeys(("function_call",), ("none", "auto")),
    **dict.fromkeys(("logit_bias", "provider_specific_fields"), ({},)),
    **dict.fromkeys(("audio", "prediction", "web_search_options", "moderation"), ()),
    **dict.fromkeys(("prompt_cache_options", "refusal", "reasoning_content"), ()),
    "modalities": (["text"],),
}
#: The value with which clients of other servers say "not given", where ours takes null.
_NOT_GIVEN: Mapping[str, int] = {"top_k": -1}
MOST_ITEMS = 8192  # messages, parts of one message, prompts
MOST_FIELDS = 500  # of an object; all policies together have far fewer parameters

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
# Of these lists only the first bad item is complained of, not each of a hundred thousand.
Ids = Annotated[list[int], Field(fail_fast=True)]
Items = Annotated[list[T], Field(fail_fast=True, max_length=MOST_ITEMS)]


class Strict(BaseModel):
    """An object without unknown fields and NaN, whose types are not guessed.

    Fields that ask for nothing are dropped first: null, and what clients of OpenAI send anyway.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    unused: ClassVar[frozenset[str]] = frozenset()  # fields that change no answer

    @model_validator(mode="before")
    @classmethod
    def _drop_what_asks_for_nothing(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        if len(given) > MOST_FIELDS:  # pydantic would complain of each unknown one
            raise ValueError(f"an object has {len(given)} fields, but may have {MOST_FIELDS}")
        unknown = given.keys() - cls.model_fields.keys() - cls.unused
        refused = {name for name in unknown if not _asks_for_nothing(name, given[name])}
        known = cls.model_fields.keys() | refused
        return {name: given[name] for name in given if name in known}


def _asks_for_nothing(name: str, value: Any) -> bool:
    if isinstance(value, dict):
        value = {key: each for key, each in value.items() if each is not None}
    return value is None or value in UNSUPPORTED.get(name, ())


def with_decoding_fields(name: str, base: type[M]) -> type[M]:
    """The request `base` with a field for each decoding parameter that is registered by now."""
    fields: dict[str, Any] = {}
    for parameter in parameters().values():
        field = NAMES.get(parameter.name, parameter.name)
        if field is None:
            continue
        if field in base.model_fields or hasattr(base, field):
            raise UserError(
                f"{next(iter(parameter.owners))} has a parameter {parameter.name!r}, but requests "
                "over HTTP have a field of that name already; call it otherwise"
            )
        defaults = [owner.default for owner in parameter.owners.values()]
        default = defaults[0] if all(each == defaults[0] for each in defaults) else None
        fields[field] = (_taken(parameter), Field(default, description=parameter.help))
    return create_model(name, __base__=base, **fields)


def given_parameters(request: BaseModel) -> dict[str, Any]:
    """The decoding parameters that a request holds, by the names they have in the library."""
    given: dict[str, Any] = {}
    for name in parameters():
        field = NAMES.get(name, name)
        if field not in request.model_fields_set:
            continue
        value = getattr(request, field)
        texts = value if isinstance(value, list) else [value]
        if not all(is_whole(text) for text in texts if isinstance(text, str)):
            raise UserError(f"{name} holds half a character (an unpaired surrogate)", name)
        given[name] = None if type(value) is int and value == _NOT_GIVEN.get(name) else value
    return given


def _taken(parameter: Parameter) -> Any:
    """A type for the API's description: it says what the owners of a parameter take, and lets every
    value pass."""
    if parameter.name in AXES:
        takes = [Literal[choices_of(parameter.name)]]
    else:
        fields = list(parameter.owners.values())
        items = [item for field in fields if (item := item_of(field))]  # one stands for a list
        takes = [Annotated[each.annotation, None, *each.metadata] for each in (*items, *fields)]
    return Annotated[Union[(*takes, None)], SkipValidation]
