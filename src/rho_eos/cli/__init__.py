"""The command line. Each command lives in its own module and imports what it needs when it runs."""

import contextlib
import inspect as inspection
import os
import re
import sys
from typing import Annotated, Any, NoReturn

import typer

from rho_eos import __version__
from rho_eos.base.errors import StorageError, UserError, printable
from rho_eos.base.plugins import load_plugins
from rho_eos.cli.batch import batch
from rho_eos.cli.chat import chat
from rho_eos.cli.compare import compare
from rho_eos.cli.config_file import plugins_in, with_config
from rho_eos.cli.eval import evaluate
from rho_eos.cli.generate import generate
from rho_eos.cli.info import info
from rho_eos.cli.inspect import inspect
from rho_eos.cli.lm_eval import PASSED_ON, lm_eval
from rho_eos.cli.merge import merge
from rho_eos.cli.models import models
from rho_eos.cli.options import Command, Measured
from rho_eos.cli.probe import probe
from rho_eos.cli.reproduce import reproduce
from rho_eos.cli.score import score
from rho_eos.cli.serve import serve
from rho_eos.cli.settings import with_settings
from rho_eos.cli.survey import survey
from rho_eos.cli.watch import watch
from rho_eos.config import EngineConfig
from rho_eos.decoding.params import DecodeParams
from rho_eos.engine.errors import EngineError
from rho_eos.engine.params import ScoreParams
from rho_eos.evals.probing.settings import Probe
from rho_eos.server.config import ServerConfig

HELP = """Variable-length generation with masked diffusion language models.

A masked diffusion model fills a canvas of MASKs. ρ-EOS reads from every forward how many of
the open positions the model would leave empty (ρ, the implicit EOS density) and lets the
canvas grow or shrink until it fits. Fixed length and DAEDAL are there to compare.

Start with:  rho-eos watch "Mia has 8 plums. 1) buys 6. 2) eats 5. How many are there now?"
"""


def flowing(text: str) -> str:
    """A text whose paragraphs have no line breaks, since a terminal has its own width. Lines that
    are indented, as examples are, stay as they are."""
    return re.sub(r"(?<=\S)\n(?=\S)", " ", inspection.cleandoc(text))


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rho-eos {__version__}")
        raise typer.Exit


def start(
    context: typer.Context,
    _: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def make_app() -> typer.Typer:
    """All commands. Their options follow from the policies that are registered by now."""
    app = typer.Typer(
        name="rho-eos",
        help=flowing(HELP),
        invoke_without_command=True,  # then the help is printed: asking for it is no mistake
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(start)
    engine, decoding = with_settings(EngineConfig), with_settings(EngineConfig, DecodeParams)
    study = with_settings(EngineConfig, Measured)
    commands: dict[str, Any] = {
        "generate": decoding(generate),
        "chat": decoding(chat),
        "watch": decoding(watch),
        "batch": engine(batch),
        "eval": with_settings(EngineConfig, Measured, DecodeParams)(evaluate),
        "compare": compare,
        "inspect": inspect,
        "survey": study(survey),
        "probe": with_settings(EngineConfig, Probe)(probe),
        "reproduce": study(reproduce),
        "lm-eval": lm_eval,
        "info": engine(info),
        "models": models,
        "merge": engine(merge),
        "score": with_settings(EngineConfig, ScoreParams)(score),
        "serve": with_settings(EngineConfig, ServerConfig)(serve),
    }
    for name, command in commands.items():
        about = flowing(command.__doc__ or "")
        if command is lm_eval:  # which reads everything after its name itself
            app.command(name, help=about, context_settings=PASSED_ON)(command)
        else:
            app.command(name, help=about, cls=Command)(with_config(command))
    return app


def main() -> None:
    """Run a command. An error is one line, with exit code 2 if the input is at fault."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        load_plugins(plugins_in(sys.argv[1:]))
        code = make_app()(standalone_mode=False) or 0
        sys.stdout.flush()
        sys.exit(code)
    except typer.TyperException as error:
        _end(2, error.format_message())
    except UserError as error:
        _end(2, str(error))
    except (EngineError, StorageError) as error:
        _end(1, getattr(error, "told", str(error)))
    except (KeyboardInterrupt, typer.Abort):
        _end(130, "interrupted")
    except BrokenPipeError:
        _let_go_of_stdout()
        sys.exit(141)
    except OSError as error:
        _let_go_of_stdout()  # it may be what could not be written
        where = f"{error.filename}: " if error.filename else ""
        _end(1, f"{where}{error.strerror or error}")


def _end(code: int, sentence: str) -> NoReturn:
    print(f"rho-eos: {printable(' '.join(sentence.split()))}", file=sys.stderr)
    sys.exit(code)


def _let_go_of_stdout() -> None:
    """Throw away what is still to be written, since writing it would fail again at the end."""
    with contextlib.suppress(OSError, ValueError):  # tests have no such file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
