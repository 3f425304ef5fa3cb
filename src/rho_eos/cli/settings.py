"""Command-line options made from the classes that check them, so that no command repeats them."""

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from pydantic.fields import FieldInfo

from rho_eos.base.errors import UserError
from rho_eos.base.settings import Settings, from_word, item_of, kinds
from rho_eos.cli.options import Measured
from rho_eos.config import EngineConfig
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.schema import from_words, parameters, told, told_default
from rho_eos.engine.params import ScoreParams
from rho_eos.evals.probing.settings import Probe
from rho_eos.server.config import ServerConfig

_PANELS: dict[type[Settings], str] = {
    Measured: "Measuring",
    Probe: "Measuring",
    EngineConfig: "Model and machine",
    ServerConfig: "Server",
    ScoreParams: "Scoring",
}
_SHORT = {"model": ["-m"], "out": ["-o"]}
_PARTS = {None: "Decoding", "policy": "Length policy", "commit": "Commit rule", "cache": "Cache"}

#: Options that `--help` shows; `--help-all` shows the rest of these classes as well, and what a
#: plugin brings is always shown.
_USUAL = {
    *("model", "device", "quantization", "plugin", "out", "tasks", "limit", "data"),
    *("policy", "commit", "cache", "preset", "initial_length", "max_new_tokens", "threshold"),
    *("temperature", "seed", "stop", "trace"),
    *("host", "port", "api_key_file", "allowed_host", "served_model_name"),
}

Command = Callable[..., Any]


def with_settings(*classes: type[Settings]) -> Callable[[Command], Command]:
    """Give a command an option for every setting of `classes`.

    For each class the command receives, first, its checked settings; of decoding a mapping of what
    was given, which may be defaults for many requests. A command that takes no decoding parameters
    still has those of the cache and the length of a block: they are the engine's defaults.
    """

    def decorate(command: Command) -> Command:
        own = list(inspect.signature(command).parameters.values())[len(classes) :]
        decodes = DecodeParams in classes
        decoding = {
            name: each
            for name, each in parameters().items()
            if decodes or "cache" in (name, each.axis) or name == "block_length"
        }
        for option in own:
            if option.name in decoding:  # of a plugin: ours have no such name
                owner = next(iter(decoding[option.name].owners))
                raise UserError(
                    f"{owner} has a parameter {option.name!r}, which is an option of "
                    f"`{command.__name__}` already"
                )

        def run(**all_options: Any) -> Any:  # typer would give an option of this name this type
            values = all_options
            asked = _decoding({n: values[n] for n in decoding if values[n] is not None})
            values["defaults"] = None if decodes else asked or None
            given = [asked if cls is DecodeParams else _given(cls, values) for cls in classes]
            return command(*given, **{each.name: values[each.name] for each in own})

        options = [
            _option(name, field, told(field) + told_default({"": field.default}), panel, hidden)
            for cls, panel in _PANELS.items()
            if cls in classes
            for name, field in cls.model_fields.items()
            if name != "defaults"
            for hidden in [name not in _USUAL]
        ]
        for name, each in decoding.items():
            hidden = name not in _USUAL and not each.is_foreign
            options.append(_option(name, each.field, each.help, _PARTS[each.axis], hidden))
        return dressed(run, command, [*own, *options])

    return decorate


def dressed(run: Command, command: Command, options: Sequence[inspect.Parameter]) -> Command:
    """`run` in place of `command`, with these options."""
    keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in options]
    run.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def _decoding(given: dict[str, Any]) -> dict[str, Any]:
    # The policy gold, which only `eval` has, asks no model: no class knows its parameters.
    return given if given.get("policy") == "gold" else from_words(given)


def _given(cls: type[Settings], values: dict[str, Any]) -> Settings:
    """What was given, each word as the type of its field, and all of it checked."""
    given = {
        name: from_word(name, field, value) if isinstance(value, str | list) else value
        for name, field in cls.model_fields.items()
        if (value := values.get(name)) is not None
    }
    return cls.from_mapping(given)


def _option(name: str, field: FieldInfo, help: str, panel: str, hidden: bool) -> inspect.Parameter:
    """An option whose value stays a word: its type may depend on the policy that is chosen."""
    kind = kinds((item_of(field) or field).annotation)[0]
    flag = "--" + name.replace("_", "-")
    if kind is bool and field.default:
        help += f"; --no-{flag[2:]} turns it off"
    info = typer.Option(
        f"{flag}/--no-{flag[2:]}" if kind is bool else flag,
        *_SHORT.get(name, []),
        help=help.replace("[", r"\["),  # no markup in it
        show_default=False,
        rich_help_panel=panel,
        hidden=hidden,
        metavar="" if kind is bool else {int: "N", float: "X"}.get(kind, "TEXT"),
    )
    annotation: Any = str | None
    if kind is bool:
        annotation = bool | None
    elif item_of(field):
        annotation = list[str] | None
    annotated = Annotated[annotation, info]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotated
    )
