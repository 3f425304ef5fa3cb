"""`--config file.yaml`: options of a command from a file. What stands on the command line wins."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rho_eos.base.errors import UserError
from rho_eos.cli.settings import Command, dressed

_FLAG = "--config"


def with_config(command: Command) -> Command:
    """Give a command the option. Its values count as the defaults of the other options."""

    def run(config: Path | None = None, **values: Any) -> Any:  # noqa: ARG001  read before
        return command(**values)

    own = inspect.signature(command).parameters.values()
    option = inspect.Parameter(
        "config",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            Path | None,
            typer.Option(
                _FLAG,
                metavar="FILE",
                help="Options from a YAML file, by their names; those given here win.",
                is_eager=True,
                callback=_apply,
            ),
        ],
    )
    return dressed(run, command, [*own, option])


def plugins_of_config(words: Sequence[str]) -> list[str]:
    """The plugins that a command line's file names: they decide which options there are."""
    following = [*words[1:], ""]
    plugins: list[str] = []
    for word, after in zip(words, following, strict=False):
        if word == _FLAG or word.startswith(f"{_FLAG}="):
            path = after if word == _FLAG else word.removeprefix(f"{_FLAG}=")
            named = read_config(Path(path)).get("plugin") or []
            plugins += map(str, named if isinstance(named, list) else [named])
    return plugins


def read_config(path: Path) -> dict[str, Any]:
    """Options by their names, with _ in place of -."""
    import yaml  # type: ignore[import-untyped]

    from rho_eos.files.jsonl import check_regular

    check_regular(path)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UserError(f"{path} holds no options; it takes lines such as 'port: 8000'")
    return {str(name).replace("-", "_"): value for name, value in content.items()}


def _apply(context: typer.Context, path: Path | None) -> Path | None:
    if path is None:
        return None
    options = {
        name[2:].replace("-", "_"): option
        for option in context.command.params
        for name in option.opts
        if name.startswith("--") and name != _FLAG
    }
    defaults: dict[str, Any] = {}
    for name, value in read_config(path).items():
        if name not in options:
            flag = "--" + name.replace("_", "-")
            raise UserError(f"{path}: {context.info_name} has no option {flag}")
        if value is not None:
            defaults[options[name].name] = _as_given(f"{path}: {name}", options[name], value)
    context.default_map = {**(context.default_map or {}), **defaults}
    return path


def _as_given(what: str, option: Any, value: Any) -> Any:
    """A value as the command line would give it: a word, words, or true and false for a flag."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise UserError(f"{what} is {value!r}, but takes true or false")
        return value
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(each, str | bool | int | float) for each in values):
        raise UserError(f"{what} is {value!r}, but takes a text, a number or a list of them")
    words = [str(each).lower() if isinstance(each, bool) else str(each) for each in values]
    if option.multiple:
        return words
    if isinstance(value, list):
        raise UserError(f"{what} is {value!r}, but takes one value")
    return words[0]
