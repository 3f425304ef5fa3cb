"""`rho-eos chat`: a conversation in the terminal, with line editing, history and commands."""

import json
import sys
from pathlib import Path
from typing import Any

from rho_eos.base.errors import UserError
from rho_eos.cli.line_editing import line_editing, read_message
from rho_eos.cli.running import load
from rho_eos.config import EngineConfig
from rho_eos.decoding.params import DecodeParams, merged
from rho_eos.decoding.schema import from_words
from rho_eos.embedded.scope import ability_of
from rho_eos.views.announced import remark_on, say

HELP = """\
/help              this list
/set NAME [VALUE]  a parameter of decoding, as on the command line; without a value: what it is now
/system [TEXT]     what the model is told before the conversation; without a text: nothing any more
/undo              take back the last question and its answer
/save FILE         write the conversation, as JSON messages, into a new file
/reset             forget the conversation
\\ at a line's end  goes on in the next line; so does a text between two lines of \"\"\"
/exit              leave; Ctrl-D does too"""


def chat(engine: EngineConfig, decode_options: dict[str, Any]) -> int:
    """Talk to the model, turn by turn; the answer appears as it becomes final.

    /help lists what can be asked of the conversation itself. Arrow keys edit the line and bring
    back earlier ones.
    """
    DecodeParams.from_mapping(decode_options)  # a bad option is an error before the model is loaded
    llm = load(engine)
    if llm.tokenizer is None:
        raise UserError("this model has no tokenizer, so it cannot chat")
    conversation = Conversation(llm, decode_options)
    with line_editing():
        if sys.stdin.isatty():
            conversation.note(f"{llm.config.model} · {conversation.params.policy} · /help, /exit")
            if able := ability_of(llm.config.model):
                conversation.note(able)
        while (line := read_message()) is not None and conversation.take(line):
            pass
    return 0


class Conversation:
    """What was said, the parameters that answers are made with, and what changes both."""

    def __init__(self, llm: Any, decode_options: dict[str, Any]) -> None:
        from rich.console import Console

        self.llm = llm
        self.options = decode_options
        self.system: str | None = None
        self.messages: list[dict[str, str]] = []
        self.console = Console(highlight=False)
        self._remarks: set[str] = set()  # each is made once

    def take(self, line: str) -> bool:
        """Answer a line, or do what it asks for. False: this was the last one."""
        try:
            match line.split():
                case []:
                    pass
                case _ if not line.startswith("/"):
                    self._answer(line.strip())
                case ["/help", *_]:
                    self.note(HELP)
                case ["/set", *words]:
                    self._set(words)
                case ["/system", *_]:
                    self.system = line.removeprefix("/system").strip() or None
                    self.note("told before the conversation" if self.system else "told nothing")
                case ["/undo", *_]:
                    asked = self.messages[-2]["content"] if self.messages else None
                    del self.messages[-2:]
                    self.note("nothing was asked yet" if asked is None else f"taken back: {asked}")
                case ["/save", *words]:
                    self._save(words)
                case ["/reset", *_]:
                    turns = len(self.messages) // 2
                    self.messages.clear()
                    self.note(f"forgotten: {turns} turn{'' if turns == 1 else 's'}")
                case ["/exit" | "/quit", *_]:
                    return False
                case [word, *_]:
                    say(
                        f"there is no {word}; /help lists what there is, and a line that begins "
                        "with a blank is said to the model"
                    )
        except UserError as error:
            say(str(error))
        return True

    def _set(self, words: list[str]) -> None:
        if not words:
            given = ", ".join(f"{name} {value}" for name, value in self.options.items())
            self.note(given or f"nothing was set: {self.params.policy} with its defaults")
            return
        name, value = words[0].replace("-", "_"), " ".join(words[1:])
        if value:
            given = from_words({**self.options, name: value})[name]
            options = merged(self.options, {name: given})
            DecodeParams.from_mapping(options)
            self.options = options
        elif name not in type(self.params).model_fields:
            DecodeParams.from_mapping(self.options | {name: value})  # it says what is wrong
        self.note(f"{name} is {getattr(self.params, name)}")

    def _save(self, words: list[str]) -> None:
        if not words:
            raise UserError("/save takes the name of a file")
        path = Path(" ".join(words)).expanduser()
        try:
            with path.open("x", encoding="utf-8") as file:
                json.dump(self.told, file, ensure_ascii=False, indent=2)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror or error}") from error
        self.note(f"{len(self.messages) // 2} turns are in {path}")

    @property
    def told(self) -> list[dict[str, str]]:
        """The conversation as the model is given it."""
        first = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*first, *self.messages]

    @property
    def params(self) -> Any:
        return DecodeParams.from_mapping(self.options)

    def _answer(self, text: str) -> None:
        """Print one answer. A turn that cannot be answered is taken back; the talk goes on."""
        self.messages.append({"role": "user", "content": text})
        remark_on(self.llm.config.model, self.messages, self._remarks)
        try:
            for event in self.llm.stream({"messages": self.told}, self.options):
                self.console.print(event.delta, end="", markup=False, soft_wrap=True)
                if event.output is not None:
                    usage = event.output.usage
                    self.console.print()
                    self.note(
                        f"L {usage.n_token} · {usage.nfe} steps · "
                        f"{usage.expansions} expansions, {usage.contractions} contractions"
                    )
                    self.messages.append({"role": "assistant", "content": event.output.text})
        except UserError as error:
            self.messages.pop()
            say(f"{error}; /reset starts anew")
        except KeyboardInterrupt:
            self.messages.pop()
            self.console.print()
            self.note("(stopped)")

    def note(self, text: str) -> None:
        self.console.print(text, style="dim", markup=False, soft_wrap=True)
