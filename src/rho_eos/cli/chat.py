"""`rho-eos chat`: a conversation in the terminal."""

import sys
from typing import Any

from rho_eos.announced import load
from rho_eos.errors import UserError

HELP = "/reset forgets the conversation, /exit (or Ctrl-D) leaves."


def chat(engine_options: dict[str, Any], decode_options: dict[str, Any]) -> int:
    """Talk to the model, turn by turn; the answer appears as it becomes final."""
    from rich.console import Console

    from rho_eos.decoding.params import DecodeParams

    params = DecodeParams.from_mapping(decode_options)
    llm = load(engine_options)
    if llm.tokenizer is None:
        raise UserError("this model has no tokenizer, so it cannot chat")
    console = Console(highlight=False)
    if sys.stdin.isatty():
        console.print(f"[dim]{llm.config.model} · {params.policy} · {HELP}[/dim]")
    messages: list[dict[str, str]] = []
    while (line := _read_turn()) is not None:
        if line in ("/exit", "/quit"):
            break
        if line == "/reset":
            messages.clear()
            continue
        if line:
            _answer(llm, params, messages, line, console)
    return 0


def _read_turn() -> str | None:
    try:
        return input("› " if sys.stdin.isatty() else "").strip()
    except EOFError:
        return None


def _answer(llm: Any, params: Any, messages: list[dict[str, str]], line: str, console: Any) -> None:
    """Print one answer. A turn that cannot be answered is taken back; the talk goes on."""
    messages.append({"role": "user", "content": line})
    try:
        for event in llm.stream({"messages": messages}, params):
            console.print(event.delta, end="", markup=False, soft_wrap=True)
            if event.output is not None:
                usage = event.output.usage
                console.print(
                    f"\n[dim]L {usage.n_token} · {usage.nfe} steps · "
                    f"{usage.expansions} expansions, {usage.contractions} contractions[/dim]"
                )
                messages.append({"role": "assistant", "content": event.output.text})
    except UserError as error:
        messages.pop()
        print(f"rho-eos: {error}; /reset starts anew", file=sys.stderr)
    except KeyboardInterrupt:
        messages.pop()
        console.print("\n[dim](stopped)[/dim]")
