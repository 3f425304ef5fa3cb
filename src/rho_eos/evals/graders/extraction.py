r"""Find the answer in a model's text: `<answer>` tags, `\boxed{}`, `####` and fenced code.

Only complete answers count: a text that ends before its closing tag, brace or fence has none.
"""

import re

BOXED = re.compile(r"\\boxed\s*\{")
HASHES = re.compile(r"####[ \t]*(\S[^\n]*)")
#: What stands between two boxes that leave the choice.
CHOICE = re.compile(r"\}[\s$,;(]*(?:or|and|vs|\\text\{ *(?:or|and) *\}|\\lor|\\vee)[\s$]*$")
FENCED = re.compile(r"^[ \t]*```[\w+-]*[ \t]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)


def tagged(text: str) -> str | None:
    """The content of the last complete `<answer>…</answer>`."""
    before, closing, _ = text.rpartition("</answer>")
    _, opening, content = before.rpartition("<answer>")
    return content if opening and closing else None


def math_answer(text: str) -> str | None:
    r"""The final result, from the first of these that is there: the last box within the answer
    tags,
    all text within them, the last box anywhere, what follows `####`."""
    answer = tagged(text)
    candidates = [
        last_boxed(answer) if answer is not None else None,
        answer,
        last_boxed(text),
        after_hashes(text),
    ]
    stripped = (candidate.strip() for candidate in candidates if candidate is not None)
    return next((candidate for candidate in stripped if candidate), None)


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete `\boxed{…}`; of boxes that leave the choice, all."""
    found: list[str] = []
    for start in reversed(list(BOXED.finditer(text))):
        content = balanced(text, start.end())
        if content is not None:
            found.insert(0, content)
            if not CHOICE.search(text, max(0, start.start() - 40), start.start()):
                break
    return " or ".join(found) or None


def unboxed(text: str) -> str:
    r"""The text with every complete `\boxed{…}` replaced by its content."""
    for start in reversed(list(BOXED.finditer(text))):
        content = balanced(text, start.end())
        if content is not None:
            end = start.end() + len(content) + 1
            text = text[: start.start()] + content + text[end:]
    return text


def balanced(text: str, start: int) -> str | None:
    r"""The text from `start` to the brace that closes the one before `start`; `\{` and `\}` do not
    count as braces."""
    depth = 1
    position = start
    while position < len(text):
        if text[position] == "\\":
            position += 1
        elif text[position] in "{}":
            depth += 1 if text[position] == "{" else -1
            if depth == 0:
                return text[start:position]
        position += 1
    return None


def after_hashes(text: str) -> str | None:
    """What follows the last `####`, to the end of its line."""
    found = HASHES.findall(text)
    return found[-1] if found else None


def code_answer(text: str) -> str | None:
    """The last fenced block within the answer tags, or all text in them; without tags, the same of
    the whole text."""
    answer = tagged(text)
    blocks = FENCED.findall(text if answer is None else answer)
    if blocks:
        return str(blocks[-1])
    if answer is None or "```" in answer:
        return None
    return answer.strip("\n") or None
