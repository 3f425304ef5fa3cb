"""Every prompt that we print or document for `tiny`: in commands, requests, Python, notebooks."""

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rho_eos.base.settings import kinds
from rho_eos.decoding.schema import parameters

ROOT = Path(__file__).parents[2]
#: What tests and training say to the model is not documentation.
PAGES = ("README.md", "docs/**/*.md", "src/rho_eos/embedded/checkpoints/*/MODEL_CARD.md")
SOURCES = ("src/rho_eos/**/*.py", "examples/*.py")
ASKING = {"generate", "stream", "chat", "create"}
FILLING = {"--template", "--template-file", "--suffix"}  # gaps, whose texts are tested elsewhere
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)
#: In a page, in a docstring, or on a line of prose between backticks.
COMMAND = re.compile(r"rho-eos (?:generate|watch) (?:\\\n|[^\n`])*")
PIPED = re.compile(r'echo ("[^"]*") \| rho-eos generate[^\n`]*')
BODY = re.compile(r"-d '(\{.*?\})'", re.DOTALL)


class Documented(NamedTuple):
    where: str
    prompt: str


def documented() -> list[Documented]:
    found = []
    for pattern in PAGES:
        for path in sorted(ROOT.glob(pattern)):
            text = path.read_text(encoding="utf-8")
            found += [Documented(_name(path), prompt) for prompt in _in_text(text)]
            for block in FENCE.findall(text):
                found += [Documented(_name(path), prompt) for prompt in _in_python(block)]
    for pattern in SOURCES:
        for path in sorted(ROOT.glob(pattern)):
            for text in _texts_of(ast.parse(path.read_text(encoding="utf-8"))):
                found += [Documented(_name(path), prompt) for prompt in _in_text(text)]
                found += [Documented(_name(path), prompt) for prompt in _in_python(_doctest(text))]
    for path in sorted(ROOT.glob("examples/*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = "\n".join("".join(each["source"]) for each in cells if each["cell_type"] == "code")
        found += [Documented(_name(path), prompt) for prompt in _in_python(code)]
    return list(dict.fromkeys(found))


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _texts_of(tree: ast.Module) -> Iterator[str]:
    """Docstrings, which are the help of commands too, and texts that hold a command."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


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
    name = option.removeprefix("--").removeprefix("no-").replace("-", "_")
    known = parameters().get(name)
    own = option in ("--json", "--raw", "--help", "-h", "--ray", "--overwrite", "--in-order")
    return own or (known is not None and kinds(known.field.annotation)[0] is bool)


def _doctest(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    return "\n".join(line[4:] for line in lines if line.startswith((">>> ", "... ")))


def _in_python(code: str) -> Iterator[str]:
    """Texts given to a call that asks `tiny`, themselves or by the name of a variable."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return
    texts: dict[str, Any] = {}
    named = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    if "tiny" not in named:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            texts[node.targets[0].id] = node.value
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr not in ASKING:
                continue
            first = node.args[:1] + [each.value for each in node.keywords if each.arg == "messages"]
            for argument in first:
                yield from _texts_in(argument, texts)


def _texts_in(node: ast.AST, variables: dict[str, Any]) -> Iterator[str]:
    if isinstance(node, ast.Name) and node.id in variables:
        yield from _texts_in(variables[node.id], {})
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        for key, value in pairs:
            if isinstance(key, ast.Constant) and key.value in ("content", "prompt"):
                yield from _texts_in(value, variables)
    elif isinstance(node, ast.List | ast.Tuple):
        for each in node.elts:
            yield from _texts_in(each, variables)
    elif isinstance(node, ast.BinOp):  # [prompt] * 4
        yield from _texts_in(node.left, variables)
