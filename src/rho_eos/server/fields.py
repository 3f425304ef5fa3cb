"""A request field for each decoding parameter of each registered policy.

The fields describe the parameters for the OpenAPI schema and let every value pass: `DecodeParams`
checks it, as everywhere, and says what is wrong in its own words.
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, TypeAdapter, create_model
from pydantic.fields import FieldInfo

from rho_eos.base.errors import UserError
from rho_eos.decoding.schema import AXES, Parameter, choices_of, parameters
from rho_eos.server.errors import bad_request
from rho_eos.text.user_text import is_whole

#: What HTTP calls a parameter, where that is not its own name; None: it is no field.
#: `stream_mode` asks for what a trace holds.
#: `logprobs` is OpenAI's own field, which the two endpoints spell differently.
NAMES: Mapping[str, str | None] = {
    "max_new_tokens": "max_tokens",
    "trace": None,
    "logprobs": None,
}
#: Values with which other servers' clients say "not given", where ours is null.
_NOT_GIVEN: Mapping[str, tuple[int, ...]] = {"top_k": (-1,)}

M = TypeVar("M", bound=BaseModel)


def with_decoding_fields(name: str, base: type[M]) -> type[M]:
    """The request `base` with a field for each parameter that policies have by now."""
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


def described(name: str, help: str = "") -> Any:
    """A field that takes anything, with the parameter's description in the schema."""

    def describe(schema: dict[str, Any]) -> None:
        parameter = parameters()[name]
        schema |= {"description": help or parameter.help, **_json_schema(parameter)}

    return Field(None, json_schema_extra=describe)


def given_parameters(request: BaseModel) -> dict[str, Any]:
    """What a request says of decoding, by the parameters' own names."""
    names = [name for name in parameters() if name not in NAMES]
    given = {name: getattr(request, name) for name in names if name in request.model_fields_set}
    for name, value in given.items():
        check_whole(name, value)
        if type(value) is int and value in _NOT_GIVEN.get(name, ()):
            given[name] = None
    return given


def check_whole(name: str, value: Any) -> None:
    """Half a character cannot be sent back."""
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and not is_whole(text):
            raise bad_request(f"{name}: holds half a character (an unpaired surrogate)", name)


def _json_schema(parameter: Parameter) -> dict[str, Any]:
    """What its values look like in JSON: where policies differ, what any of them takes, or null."""
    if parameter.name in AXES:
        kinds: list[dict[str, Any]] = [{"type": "string", "enum": list(choices_of(parameter.name))}]
    else:
        kinds = []
        for field in parameter.owners.values():
            for kind in _kinds(field):
                if kind not in kinds:
                    kinds.append(kind)
    null = {"type": "null"}
    schema: dict[str, Any] = {"anyOf": [*(kind for kind in kinds if kind != null), null]}
    defaults = [field.default for field in parameter.owners.values()]
    if parameter.name not in AXES and all(default == defaults[0] for default in defaults):
        schema["default"] = list(defaults[0]) if isinstance(defaults[0], tuple) else defaults[0]
    return schema


def _kinds(field: FieldInfo) -> list[dict[str, Any]]:
    """The alternatives of a field's own JSON schema."""
    annotation: Any = Annotated[field.annotation, field]
    whole = TypeAdapter(annotation).json_schema()
    kinds: list[dict[str, Any]] = whole.get("anyOf", [whole])
    for kind in kinds:
        for name in ("default", "description", "title"):
            kind.pop(name, None)
    texts = [kind["items"] for kind in kinds if kind.get("type") == "array"]
    return [*texts, *kinds]  # one text stands for a list of one
