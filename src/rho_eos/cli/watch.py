"""`rho-eos watch`: the canvas while it denoises, grows and shrinks."""

import time
from typing import Any

import typer

from rho_eos.cli.options import Raw, Suffix
from rho_eos.cli.running import prepared
from rho_eos.config import EngineConfig


def watch(
    engine: EngineConfig,
    decode_options: dict[str, Any],
    prompt: str = typer.Argument(..., help="The prompt."),
    raw: Raw = False,
    suffix: Suffix = None,
    delay: float = typer.Option(0.1, min=0, help="Seconds to pause after each step."),
) -> int:
    """Watch the canvas denoise: tokens by confidence, MASKs, ρ and the length as they change.

    [bold]Example[/bold]

      rho-eos watch "Mia has 8 plums. 1) buys 6. 2) eats 5. How many are there now?" --delay 0.3
    """
    from rich.console import Console
    from rich.live import Live

    from rho_eos.engine.request import Detail
    from rho_eos.text.ask import Ask
    from rho_eos.views.screen import Screen, plain_line

    ask = Ask(prompt, decode_options, raw=raw, suffix=suffix)
    [request], loaded = prepared(engine, ask)
    llm = loaded()
    console = Console(highlight=False)
    events = llm.engine.follow(llm.engine.submit(request, Detail.STEPS))
    screen = Screen(llm, request)
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            for event in events:
                screen.show(event)
                live.update(screen.render(console.width, console.height), refresh=True)
                time.sleep(delay)
    else:
        for event in events:
            console.print(plain_line(event.record), soft_wrap=True)
            screen.show(event)
    assert screen.output is not None
    console.print()
    console.print(screen.output.text, markup=False, soft_wrap=True)
    console.print(screen.closing_line(), style="dim", soft_wrap=True)
    return 0
