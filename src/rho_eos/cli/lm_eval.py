"""`rho-eos lm-eval`: lm-evaluation-harness with our model and our tasks in it."""

import sys
import traceback
from pathlib import Path

import typer

from rho_eos.base.errors import UserError, needs_extra
from rho_eos.cli.config_file import read_config, split

#: Everything after the command is for lm-eval to read, --help included.
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
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

    sys.argv = ["rho-eos lm-eval", *split(context.args, "--plugin")[1]]
    setup_logging()
    harness = HarnessCLI()
    arguments = harness.parse_args()
    given = vars(arguments)
    config = Path(given.get("config") or "")
    in_file = read_config(config) if config.is_file() else {}  # a missing one lm-eval names itself
    own = given.get("include_path") or in_file.get("include_path") or []
    arguments.include_path = [str(TASK_FILES), *([own] if isinstance(own, str) else own)]
    if arguments.command == "run" and not (arguments.model or in_file.get("model")):
        raise UserError(
            "say which model: --model rho_eos --model_args pretrained=tiny (or a folder or Hub id)"
        )
    try:
        harness.execute(arguments)
    except (OSError, TypeError, ValueError) as error:
        *_, last = traceback.extract_tb(error.__traceback__)
        if not Path(last.filename).as_posix().endswith(READS_ARGUMENTS):
            raise
        raise UserError(f"lm-eval: {error}") from error
    return 0
