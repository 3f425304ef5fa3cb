"""What the commands that ask a model something share: options, and how an ask gets to a model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rho_eos.base.errors import UserError
from rho_eos.views.announced import load, remark_on

if TYPE_CHECKING:
    from rho_eos.llm import LLM
    from rho_eos.text.ask import Ask, Request

Raw = Annotated[bool, typer.Option("--raw", help="Do not apply the chat template.")]
Suffix = Annotated[
    str | None,
    typer.Option(help="Fill the gap between the prompt, taken as it is, and this text."),
]


def prepared(
    engine_options: dict[str, Any], ask: "Ask"
) -> "tuple[list[Request], Callable[[], LLM]]":
    """The requests of an ask, and what loads the model for them: what is wrong with an ask is said
    before weights are loaded."""
    from rho_eos.base.plugins import load_plugins
    from rho_eos.config import EngineConfig
    from rho_eos.models.loading import open_checkpoint
    from rho_eos.text.preparation import Preparer

    config = EngineConfig.from_mapping(engine_options)
    load_plugins(config.plugin)
    checkpoint = open_checkpoint(config)

    def loaded() -> "LLM":
        llm = load(engine_options, checkpoint)
        remark_on(config.model, ask.prompt, beside=ask.suffix or ask.template)
        return llm

    return Preparer(checkpoint, config).prepare(ask), loaded


def read_text(path: Path) -> str:
    """The text of a file byte for byte: line ends stay as they are."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"cannot read {path}: it is not UTF-8") from error


def read_json(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise UserError(f"cannot read {path}: it is not JSON") from error
