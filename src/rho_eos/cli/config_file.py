"""`--config file.yaml`: options of a command from a file. What stands on the command line wins."""

import argparse
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rho_eos.base.errors import UserError
from rho_eos.cli.settings import Command, dressed


def with_config(command: Command) -> Command:
    """Give a command the option. Its values count as the defaults of the other options."""
    option = typer.Option(
        metavar="FILE",
        help="Options from a YAML file, by their names; those given here win.",
        is_eager=True,
        callback=_apply,
    )

    def run(config: Annotated[Path | None, option] = None, **values: Any) -> Any:  # noqa: ARG001
        return command(**values)  # the file was read by the callback

    own = inspect.signature(command).parameters.values()
    return dressed(run, command, [*own, inspect.signature(run).parameters["config"]])


def split(words: Sequence[str], option: str) -> tuple[list[str], list[str]]:
    """The values that a command line gives to an option, and its other words.

    Plugins have to be known before the options are, since they bring some of them.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(option, dest="values", action="append", nargs="?", default=[])
    known, others = parser.parse_known_args(words)
    return [value for value in known.values if value], others


def plugins_in(words: Sequence[str]) -> list[str]:
    """The plugins that a command line names, itself or in its file of options."""
    plugins, others = split(words, "--plugin")
    of_lm_eval = others[:1] == ["lm-eval"]  # which has an option --config of its own
    for path in [] if of_lm_eval else split(words, "--config")[0]:
        named = read_config(Path(path)).get("plugin") or []
        plugins += map(str, named if isinstance(named, list) else [named])
    return plugins


def read_config(path: Path) -> dict[str, Any]:
    """Options by their names, with _ in place of -."""
    from rho_eos.evals.files import read_yaml
    from rho_eos.files.jsonl import check_regular

    check_regular(path)
    content = read_yaml(path) or {}
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
        if name.startswith("--") and name != "--config"
    }
    defaults: dict[str, Any] = {}
    for name, value in read_config(path).items():
        if name not in options:
            flag = "--" + name.replace("_", "-")
            raise UserError(f"{path}: {context.info_name} has no option {flag}")
        if value is not None:
            defaults[options[name].name] = _as_given(options[name], value)
    context.default_map = {**(context.default_map or {}), **defaults}
    return path


def _as_given(option: Any, value: Any) -> Any:
    """A value as the command line would give it: words, or true and false for a flag."""
    if option.multiple:
        return [str(each) for each in (value if isinstance(value, list) else [value])]
    return value if option.is_flag else str(value)
