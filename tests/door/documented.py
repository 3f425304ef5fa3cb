"""Every prompt that we print or document for `tiny`: in commands, requests, Python, notebooks."""

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rho_eos.base.settings import kinds
from rho_eos.decoding.schema import parameters

ROOT = Path(__file__).parents[2]
#: What tests and training say to the model is not documentation.
SOURCES = (
    *("README.md", "docs/**/*.md", "src/rho_eos/embedded/checkpoints/*/MODEL_CARD.md"),
    *("src/rho_eos/**/*.py", "examples/*.py", "examples/*.ipynb"),
)
FILLING = {"--template", "--template-file", "--suffix"}  # gaps, whose texts are tested elsewhere
FLAGS = {"--json", "--raw", "--help", "-h", "--ray", "--overwrite", "--in-order"}
#: In a page, in a docstring, or on a line of prose between backticks.
COMMAND = re.compile(r"rho-eos (?:generate|watch) (?:\\\n|[^\n`])*")
PIPED = re.compile(r'echo ("[^"]*") \| rho-eos generate[^\n`]*')
BODY = re.compile(r"-d '(\{.*?\})'", re.DOTALL)
#: A numbered problem between quotation marks, wherever; braces are filled in by a program.
PROBLEM = re.compile(r'"(?:[^"\n\\{]|\\.)*1\) (?:[^"\n\\{]|\\.)*"')


class Documented(NamedTuple):
    where: str
    prompt: str


def documented() -> list[Documented]:
    found = []
    for path in sorted(path for pattern in SOURCES for path in ROOT.glob(pattern)):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".ipynb":
            text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
        where = path.relative_to(ROOT).as_posix()
        found += [Documented(where, prompt) for prompt in _in_text(text)]
    return list(dict.fromkeys(found))


def _in_text(text: str) -> Iterator[str]:
    for command in COMMAND.findall(text):
        yield from _in_command(command)
    for quoted in PIPED.findall(text):
        yield json.loads(quoted)
    for body in BODY.findall(text):
        request = json.loads(body)
        if request.get("model") == "tiny" and not {"template", "suffix"} & set(request):
            yield from [each["content"] for each in request.get("messages", [])]
            yield from [request["prompt"]] if "prompt" in request else []
    for quoted in PROBLEM.findall(text):
        prompt = ast.literal_eval(quoted)
        if "xs" not in prompt:  # a program with gaps
            yield prompt


def _in_command(command: str) -> Iterator[str]:
    """The prompt of a command, if it has one and asks the embedded model for an answer."""
    words = shlex.split(command.replace("\\\n", " "), comments=True)
    if FILLING & set(words):
        return
    model, prompt, rest = "tiny", None, iter(words[2:])
    for word in rest:
        if word in ("--model", "-m"):
            model = next(rest)
        elif word.startswith("-"):
            if "=" not in word and not _is_flag(word):
                next(rest, None)
        elif prompt is None and word not in ("<", "|", ">"):
            prompt = word
        else:
            break
    if prompt not in (None, "…") and model == "tiny":
        yield prompt


def _is_flag(option: str) -> bool:
    known = parameters().get(option.removeprefix("--").removeprefix("no-").replace("-", "_"))
    return option in FLAGS or (known is not None and kinds(known.field.annotation)[0] is bool)
