"""The command line. Each command lives in its own module and imports what it needs when it runs."""

import os
import sys
from typing import Annotated

import typer

from rho_eos import __version__
from rho_eos.cli.chat import chat
from rho_eos.cli.compare import compare
from rho_eos.cli.eval import EvalCommand, evaluate
from rho_eos.cli.generate import generate
from rho_eos.cli.info import info
from rho_eos.cli.inspect import inspect
from rho_eos.cli.lm_eval import lm_eval
from rho_eos.cli.ray_options import RayCommand
from rho_eos.cli.reproduce import reproduce
from rho_eos.cli.serve import serve
from rho_eos.cli.settings import with_settings
from rho_eos.cli.watch import watch
from rho_eos.config import DecodeParams, EngineConfig
from rho_eos.errors import UserError
from rho_eos.server.config import ServerConfig

app = typer.Typer(
    name="rho-eos",
    help="""Variable-length generation with masked diffusion language models.

    A masked diffusion model fills a canvas of MASKs. ρ-EOS reads from every forward how many of
    the open positions the model would leave empty (ρ, the implicit EOS density) and lets the
    canvas grow or shrink until it fits. Fixed length and DAEDAL are there to compare.

    Start with:  rho-eos watch "What is (3 + 4) * 2?"
    """,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rho-eos {__version__}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


app.command(cls=RayCommand)(with_settings(EngineConfig, DecodeParams)(generate))
for _command in (chat, watch):
    app.command()(with_settings(EngineConfig, DecodeParams)(_command))
app.command("eval", cls=EvalCommand)(with_settings(EngineConfig, DecodeParams)(evaluate))
app.command()(compare)
app.command()(inspect)
app.command()(with_settings(EngineConfig)(reproduce))
# All that follows the command is for lm-eval to read, --help included.
app.command(
    "lm-eval",
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    },
)(lm_eval)
app.command()(with_settings(EngineConfig)(info))
app.command()(with_settings(EngineConfig, ServerConfig)(serve))


def main() -> None:
    """Run, and turn every error that is the user's to mend into one line and exit code 2."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except (UserError, typer.TyperException) as error:
        text = error.format_message() if isinstance(error, typer.TyperException) else str(error)
        print(f"rho-eos: {' '.join(text.split())}", file=sys.stderr)
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        print("rho-eos: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
