"""`rho-eos lm-eval`: lm-evaluation-harness with our model and our tasks in it."""

import sys
import traceback
from pathlib import Path
from typing import Any

import typer

from rho_eos.base.errors import UserError, needs_extra

TASK_FILES = Path(__file__).parent.parent / "lm_eval" / "task_files"
#: Where lm-eval finds fault with what it was given.
READS_ARGUMENTS = ("config/evaluate_config.py", "api/registry.py", "lm_eval/evaluator.py")


def lm_eval(context: typer.Context) -> int:
    """Run lm-evaluation-harness with the model rho_eos and the tasks …_rho.

    Everything after the command is lm-eval's own: see [bold]rho-eos lm-eval run --help[/bold].
    --model_args takes every engine and decoding parameter, --gen_kwargs every decoding parameter.
    --plugin file.py brings policies of your own.

    [bold]Examples[/bold]

      rho-eos lm-eval --model rho_eos --model_args pretrained=GSAI-ML/LLaDA-8B-Instruct
      --tasks gsm8k_rho --apply_chat_template --gen_kwargs preset=sym

      rho-eos lm-eval --model rho_eos --model_args pretrained=tiny --tasks tiny_gsm_rho
      --apply_chat_template --limit 20

      rho-eos lm-eval --model rho_eos --model_args pretrained=tiny,mc_num=32 --tasks arc_easy
    """
    from rho_eos.base.plugins import without_plugins

    if context.args in ([], ["--help"], ["-h"]):
        print(context.get_help())
        return 0
    try:
        import rho_eos.lm_eval.model  # noqa: F401  registers the model
    except ModuleNotFoundError as error:
        if error.name not in ("lm_eval", "datasets"):
            raise
        raise needs_extra("this command", error.name, "lm-eval") from None
    from lm_eval._cli import HarnessCLI
    from lm_eval.utils import setup_logging

    sys.argv = ["rho-eos lm-eval", *without_plugins(context.args)]
    setup_logging()
    harness = HarnessCLI()
    arguments = harness.parse_args()
    arguments.include_path = [str(TASK_FILES), *_own_include_paths(arguments)]
    if arguments.command == "run" and not _names_a_model(arguments):
        raise UserError(
            "say which model: --model rho_eos --model_args pretrained=tiny (or a folder or Hub id)"
        )
    try:
        harness.execute(arguments)
    except (OSError, TypeError, ValueError) as error:
        if not _is_about_arguments(error):
            raise
        raise UserError(f"lm-eval: {error}") from error
    return 0


def _is_about_arguments(error: Exception) -> bool:
    """Whether it comes from where lm-eval reads its arguments and looks names up in them."""
    *_, last = traceback.extract_tb(error.__traceback__)
    return Path(last.filename).as_posix().endswith(READS_ARGUMENTS)


def _names_a_model(arguments: Any) -> bool:
    return bool(arguments.model or _from_config(arguments, "model"))


def _own_include_paths(arguments: Any) -> list[str]:
    """The user's: from the command line, else from the file of `--config`."""
    given = getattr(arguments, "include_path", None)
    if given is None:
        given = _from_config(arguments, "include_path")
    return [given] if isinstance(given, str) else list(given or [])


def _from_config(arguments: Any, name: str) -> Any:
    """What the file of `--config` says; what is wrong with that file lm-eval says itself."""
    import yaml  # type: ignore[import-untyped]

    config = getattr(arguments, "config", None)
    if config is None or not Path(config).is_file():
        return None
    try:
        content = yaml.safe_load(Path(config).read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError):
        return None
    return content.get(name) if isinstance(content, dict) else None
