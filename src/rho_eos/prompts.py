"""From what a user gives (text, messages, token ids) to the token ids the model sees."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError

from rho_eos.errors import UserError

Message = Mapping[str, Any]
#: A text, a conversation, token ids, or a mapping that holds one of them under its name.
Prompt = str | Sequence[int] | Sequence[Message] | Mapping[str, Any]

_KINDS = ("prompt", "messages", "prompt_token_ids")


def encode_prompt(
    prompt: Prompt,
    tokenizer: Any,
    vocabulary: int,
    raw: bool = False,
    answer_prefix: str = "",
) -> list[int]:
    """Token ids for any kind of prompt. A text is a user's message unless `raw`."""
    kind, content = _kind_of(prompt)
    if kind == "prompt_token_ids":
        check_ids("prompt_token_ids", content, vocabulary)
        return list(content)
    if tokenizer is None:
        raise UserError(f"this model has no tokenizer: give prompt_token_ids instead of {kind}")
    if kind == "prompt":
        if not isinstance(content, str) or not content.strip():
            raise UserError("the prompt is empty")
        if raw or tokenizer.chat_template is None:
            return _as_text(tokenizer, content + answer_prefix, add_special_tokens=True)
        content = [{"role": "user", "content": content}]
    return encode_chat(content, tokenizer, answer_prefix)


def encode_chat(messages: Sequence[Message], tokenizer: Any, answer_prefix: str = "") -> list[int]:
    """A conversation in the tokenizer's chat template, ready for the assistant's turn.

    Special tokens that a user writes out literally stay text: only the template's own are parsed.
    """
    _check_messages(messages)
    if tokenizer.chat_template is None:
        text = "\n\n".join(message["content"] for message in messages)
        return _as_text(tokenizer, text + answer_prefix, add_special_tokens=True)
    if not any(_holds_special(tokenizer, message["content"]) for message in messages):
        text = _render(tokenizer, messages) + answer_prefix
        return list(tokenizer.encode(text, add_special_tokens=False))
    marks = [f"\x1a{number}\x1a" for number in range(len(messages))]
    marked = [{**message, "content": mark} for message, mark in zip(messages, marks, strict=True)]
    ids: list[int] = []
    for piece in re.split("(\x1a[0-9]+\x1a)", _render(tokenizer, marked) + answer_prefix):
        if piece in marks:
            ids += _as_text(tokenizer, messages[marks.index(piece)]["content"].strip())
        else:
            ids += tokenizer.encode(piece, add_special_tokens=False)
    return ids


def _kind_of(prompt: Prompt) -> tuple[str, Any]:
    if isinstance(prompt, Mapping):
        kinds = [kind for kind in _KINDS if kind in prompt]
        if len(kinds) != 1:
            raise UserError(f"a prompt holds exactly one of {', '.join(_KINDS)}; found {kinds}")
        return kinds[0], prompt[kinds[0]]
    if isinstance(prompt, str):
        return "prompt", prompt
    if len(prompt) == 0:
        raise UserError("the prompt is empty")
    return ("messages" if isinstance(prompt[0], Mapping) else "prompt_token_ids"), prompt


def check_ids(name: str, ids: Any, vocabulary: int) -> None:
    whole = isinstance(ids, Sequence) and all(type(token) is int for token in ids)
    if not whole or not ids:
        raise UserError(f"{name} takes a non-empty list of integers")
    for token in ids:
        if not 0 <= token < vocabulary:
            raise UserError(f"{name} holds {token}; the vocabulary has {vocabulary} ids")


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise UserError("messages takes a non-empty list of {role, content}")
    for message in messages:
        good = isinstance(message, Mapping) and {"role", "content"} <= set(message)
        if not good or not isinstance(message["content"], str):
            raise UserError(f"a message takes a role and a content text; got {message!r}")
    if not any(message["content"].strip() for message in messages):
        raise UserError("the messages are empty")


def _render(tokenizer: Any, messages: Sequence[Message]) -> str:
    try:
        text = tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True
        )
    except TemplateError as error:  # some templates insist on turns that alternate, or on roles
        raise UserError(f"the model's chat template refuses these messages: {error}") from error
    return str(text)


def _holds_special(tokenizer: Any, text: str) -> bool:
    return any(token in text for token in tokenizer.all_special_tokens)


def _as_text(tokenizer: Any, text: str, add_special_tokens: bool = False) -> list[int]:
    """Encode with special tokens spelled out in the text treated as ordinary characters."""
    return list(
        tokenizer.encode(text, add_special_tokens=add_special_tokens, split_special_tokens=True)
    )
