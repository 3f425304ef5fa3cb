"""Command-line options made from the configuration classes, so that no command repeats them."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin

import typer

from rho_eos.config import DecodeParams, EngineConfig
from rho_eos.errors import UserError
from rho_eos.server.config import ServerConfig

_PANELS = {
    DecodeParams: "Decoding",
    EngineConfig: "Model and machine",
    ServerConfig: "Server",
}


Command = Callable[..., Any]


def with_settings(*classes: type) -> Callable[[Command], Command]:
    """Give a command an option for every setting of `classes`.

    For each class the command receives, first, a mapping of only what was given on the command
    line, for `from_mapping` to check.
    """

    def decorate(command: Command) -> Command:
        own = list(inspect.signature(command).parameters.values())[len(classes) :]

        def run(**values: Any) -> Any:
            given = [_given(cls, values) for cls in classes]
            return command(*given, **{p.name: values[p.name] for p in own})

        settings = [
            _option(field, _PANELS[cls]) for cls in classes for field in dataclasses.fields(cls)
        ]
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + settings
        )
        run.__name__ = command.__name__
        run.__doc__ = command.__doc__
        return run

    return decorate


def _option(field: "dataclasses.Field[Any]", panel: str) -> inspect.Parameter:
    flag = "--" + field.name.replace("_", "-")
    names = [f"{flag}/--no-{flag[2:]}"] if field.type is bool else [flag]
    if field.name == "model":
        names.append("-m")
    info = typer.Option(
        *names,
        help=field.metadata["help"],
        show_default=_shown(field.default),
        rich_help_panel=panel,
        metavar=None if field.type is bool else _metavar(field.type),
    )
    annotation: Any = str | None
    if field.type is bool:
        annotation = bool | None
    elif get_origin(field.type) is tuple:
        annotation = list[str] | None
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[annotation, info],
    )


def _given(cls: type, values: dict[str, Any]) -> dict[str, Any]:
    return {
        field.name: _convert(field, values[field.name])
        for field in dataclasses.fields(cls)
        if values[field.name] is not None
    }


def _convert(field: "dataclasses.Field[Any]", value: Any) -> Any:
    """A word from the command line as the type of its field; the range is checked later."""
    if not isinstance(value, str):
        return value
    types = [kind for kind in (get_args(field.type) or (field.type,)) if kind is not type(None)]
    if value.lower() == "none" and type(None) in get_args(field.type):
        return None
    try:
        return types[0](value)
    except ValueError:
        kind = {int: "an integer", float: "a number"}[types[0]]
        raise UserError(f"{field.name} is {value!r}, but takes {kind}") from None


def _shown(default: Any) -> str | bool:
    if default in (None, ()):
        return False
    return str(default).lower() if isinstance(default, bool) else str(default)


def _metavar(kind: Any) -> str:
    kinds = get_args(kind) or (kind,)
    return {int: "N", float: "X"}.get(kinds[0], "TEXT")
