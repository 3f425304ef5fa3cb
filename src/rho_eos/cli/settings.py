"""Command-line options made from the classes that check them, so that no command repeats them."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer
from pydantic.fields import FieldInfo

from rho_eos.base.errors import UserError
from rho_eos.base.settings import Settings, choices, from_word, item_of, kinds
from rho_eos.config import EngineConfig
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.schema import AXES, choices_of, from_words, parameters
from rho_eos.server.config import ServerConfig

_PANELS = {
    DecodeParams: "Decoding",
    EngineConfig: "Model and machine",
    ServerConfig: "Server",
}

_AXIS_PANELS = {"policy": "Length policy", "commit": "Commit rule", "cache": "Cache"}

Command = Callable[..., Any]


def with_settings(*classes: type[Settings]) -> Callable[[Command], Command]:
    """Give a command an option for every setting of `classes`.

    For each class the command receives, first, a mapping of only what was given on the command
    line, for `from_mapping` to check.
    """

    def decorate(command: Command) -> Command:
        own = list(inspect.signature(command).parameters.values())[len(classes) :]

        def run(**values: Any) -> Any:
            given = [_given(cls, values) for cls in classes]
            if DecodeParams not in classes and EngineConfig in classes:
                usual = from_words(
                    {name: values[name] for name in _usual() if values[name] is not None}
                )
                given[classes.index(EngineConfig)] |= {"defaults": usual} if usual else {}
            return command(*given, **{p.name: values[p.name] for p in own})

        named = {option.name: option for cls in classes for option in _options(cls)}
        if DecodeParams not in classes and EngineConfig in classes:
            shared = [each for each in _options(DecodeParams) if each.name in _usual()]
            named |= {option.name: option for option in shared}
        for option in own:
            _check_not_taken(option.name, command.__name__, named)
        return dressed(run, command, [*own, *named.values()])

    return decorate


def dressed(run: Command, command: Command, options: Sequence[inspect.Parameter]) -> Command:
    """`run` in place of `command`, with these options."""
    keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in options]
    run.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def _usual() -> list[str]:
    """The parameters that a process may set for requests that do not say: those of the cache."""
    owned = {each.name: each.axis for each in parameters().values()}
    return [name for name, axis in owned.items() if name == "cache" or axis == "cache"]


def _check_not_taken(name: str, command: str, settings: Mapping[str, inspect.Parameter]) -> None:
    """A policy from outside may have any parameters but those that a command has already."""
    if name in settings:
        owner = next(iter(parameters()[name].owners))
        raise UserError(
            f"{owner} has a parameter {name!r}, which is an option of `{command}` already"
        )


def _options(cls: type[Settings]) -> list[inspect.Parameter]:
    if cls is not DecodeParams:
        fields = cls.model_fields
        shown = {name: field for name, field in fields.items() if name != "defaults"}
        return [_option(name, field, _PANELS[cls]) for name, field in shown.items()]
    options = []
    for parameter in parameters().values():
        name, field, help = parameter.name, parameter.field, parameter.help
        if name in AXES:
            help = f"{help}: {', '.join(choices_of(name))}"
        panel = _PANELS[cls] if parameter.axis is None else _AXIS_PANELS[parameter.axis]
        if parameter.axis is not None and not parameter.everywhere:
            help = f"{help} ({', '.join(parameter.owners)})"
        options.append(_option(name, field, panel, help))
    return options


def _option(name: str, field: FieldInfo, panel: str, help: str | None = None) -> inspect.Parameter:
    kind = kinds(field.annotation)[0]
    flag = "--" + name.replace("_", "-")
    names = [f"{flag}/--no-{flag[2:]}"] if kind is bool else [flag]
    if name == "model":
        names.append("-m")
    info = typer.Option(
        *names,
        help=(help or str(field.description)).replace("[", r"\["),  # no markup in it
        show_default=_shown(field.default),
        rich_help_panel=panel,
        metavar=None if kind is bool else _metavar(field),
    )
    annotation: Any = str | None
    if kind is bool:
        annotation = bool | None
    elif item_of(field):
        annotation = list[str] | None
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[annotation, info],
    )


def _given(cls: type[Settings], values: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, each word as the type of its field; ranges are checked with the rest."""
    if cls is DecodeParams:
        given = {n: values[n] for n in parameters() if values[n] is not None}
        # `eval --policy gold` asks no model, so gold is no policy of the registry.
        gold = {"policy": given.pop("policy")} if given.get("policy") == "gold" else {}
        return from_words(given) | gold
    return {
        name: from_word(name, field, value) if isinstance(value, str | list) else value
        for name, field in cls.model_fields.items()
        if (value := values.get(name)) is not None
    }


def _shown(default: Any) -> str | bool:
    if default in (None, ()):
        return False
    return str(default).lower() if isinstance(default, bool) else str(default)


def _metavar(field: FieldInfo) -> str:
    if choices(field):
        return "|".join(choices(field))
    return {int: "N", float: "X"}.get(kinds((item_of(field) or field).annotation)[0], "TEXT")
