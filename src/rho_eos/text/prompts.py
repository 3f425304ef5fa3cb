"""From what a user gives (text, messages, token ids) to the token ids the model sees."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rho_eos.base.errors import UserError
from rho_eos.text.chat_template import render
from rho_eos.text.user_text import (
    added_among,
    encode_as_text,
    encode_with_added,
    holds_added_token,
    is_whole,
    split_at_added,
)

Message = Mapping[str, Any]
#: A text, a conversation, token ids, or a mapping that holds one of them under its name.
Prompt = str | Sequence[int] | Sequence[Message] | Mapping[str, Any]

_KINDS = ("prompt", "messages", "prompt_token_ids")
#: Stands for a user's text in a rendered template; templates that trim a text lose the outer signs,
#: which count as whitespace.
_MARK = "\x1c\x1a{}\x1a\x1c"
_FOUND = re.compile("(\x1c?)\x1a([0-9]+)\x1a(\x1c?)")


def encode_prompt(
    prompt: Prompt | None,
    tokenizer: Any,
    vocabulary: int,
    raw: bool = False,
    answer_prefix: str = "",
) -> list[int]:
    """Token ids for any kind of prompt. A text is a user's message unless `raw`."""
    kind, content = kind_of(prompt)
    if kind == "prompt_token_ids":
        check_ids("prompt_token_ids", content, vocabulary)
        return list(content)
    if tokenizer is None:
        raise UserError(f"this model has no tokenizer: give prompt_token_ids instead of {kind}")
    if kind == "prompt":
        if not isinstance(content, str) or not content.strip():
            raise UserError("the prompt is empty")
        check_whole("the prompt", content)
        if raw or tokenizer.chat_template is None:
            return encode_as_text(tokenizer, content + answer_prefix, add_special_tokens=True)
        content = [{"role": "user", "content": content}]
    return encode_chat(content, tokenizer, answer_prefix)


def encode_chat(messages: Sequence[Message], tokenizer: Any, answer_prefix: str = "") -> list[int]:
    """A conversation in the tokenizer's chat template, ready for the assistant's turn.

    Tokens that a user writes out literally stay text: only the template's own are parsed. Which
    ones those are shows where the template is rendered with marks in place of the contents.
    """
    _check_messages(messages)
    if tokenizer.chat_template is None:
        text = "\n\n".join(message["content"] for message in messages)
        return encode_as_text(tokenizer, text + answer_prefix, add_special_tokens=True)
    _check_other_fields(messages, tokenizer)
    alone = render(tokenizer, [_marked(message, n) for n, message in enumerate(messages)])
    text = render(tokenizer, messages) + answer_prefix
    if not is_whole(alone + text):  # messages are, by now
        raise UserError("the model's chat template writes half a character (an unpaired surrogate)")
    own = added_among(tokenizer, encode_with_added(tokenizer, alone))
    ids = encode_with_added(tokenizer, text)
    if added_among(tokenizer, ids) == own:
        return ids
    contents = [message["content"] for message in messages] + [answer_prefix]
    return _encode_marked(tokenizer, alone + _MARK.format(len(messages)), contents)


def _marked(message: Message, number: int) -> Message:
    # Templates may ask whether there is a content at all, so an empty one stays as it is.
    blank = not message["content"].strip()
    return message if blank else {**message, "content": _MARK.format(number)}


def _encode_marked(tokenizer: Any, template: str, contents: Sequence[str]) -> list[int]:
    """The template's own tokens, and the text between them with the contents back in place."""

    def content(mark: re.Match[str]) -> str:
        text = contents[int(mark[2])]
        text = text if mark[1] else text.lstrip()
        return text if mark[3] else text.rstrip()

    ids: list[int] = []
    for piece in split_at_added(tokenizer, template):
        if isinstance(piece, int):
            ids.append(piece)
        elif "\x1a" in _FOUND.sub("", piece):
            raise UserError(
                "a message holds a special token of the model, and the model's chat template "
                "changes messages, so that it cannot be kept as text"
            )
        elif piece:
            ids += encode_as_text(tokenizer, _FOUND.sub(content, piece))
    return ids


def kind_of(prompt: Prompt | None) -> tuple[str, Any]:
    """Under which of the three names a prompt belongs, and what it holds."""
    if prompt is None:
        raise UserError("the prompt is empty")
    if isinstance(prompt, Mapping):
        kinds = [kind for kind in _KINDS if kind in prompt]
        if len(kinds) != 1:
            raise UserError(f"a prompt holds exactly one of {', '.join(_KINDS)}; found {kinds}")
        return kinds[0], prompt[kinds[0]]
    if isinstance(prompt, str):
        return "prompt", prompt
    if not isinstance(prompt, Sequence) or isinstance(prompt, bytes):
        raise UserError(f"a prompt is a text, messages or token ids, not {type(prompt).__name__}")
    if len(prompt) == 0:
        raise UserError("the prompt is empty")
    return ("messages" if isinstance(prompt[0], Mapping) else "prompt_token_ids"), prompt


def listed(given: Any) -> Any:
    """Token ids may come as an array, as rollouts hand them out."""
    return given.tolist() if isinstance(given, np.ndarray) else given


def as_list(prompts: Prompt | Sequence[Prompt | None]) -> list[Prompt | None]:
    """The prompts of an argument that may be one prompt or several."""
    prompts = listed(prompts)
    if not hasattr(prompts, "__len__"):
        raise UserError(f"prompts takes one prompt or a list of them, not {prompts!r:.40}")
    ids = len(prompts) > 0 and not isinstance(prompts, Mapping) and isinstance(prompts[0], int)
    return [prompts] if ids or isinstance(prompts, str | Mapping) else list(prompts)  # type: ignore[list-item, arg-type]


def as_messages(prompt: str | Sequence[Message] | None) -> Prompt | None:
    """A question is a conversation of one message."""
    if prompt is None:
        return None
    single = isinstance(prompt, str)
    return {"messages": [{"role": "user", "content": prompt}] if single else prompt}


def check_ids(name: str, ids: Any, vocabulary: int, also: str = "") -> None:
    listed = isinstance(ids, Sequence) and not isinstance(ids, str | bytes)
    whole = listed and all(type(token) is int for token in ids)
    if not whole or not ids:
        raise UserError(f"{name} takes a {also}non-empty list of integers")
    for token in ids:
        if not 0 <= token < vocabulary:
            raise UserError(f"{name} holds {token}; the vocabulary has {vocabulary} ids")


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise UserError("messages takes a non-empty list of {role, content}")
    for message in messages:
        good = isinstance(message, Mapping) and {"role", "content"} <= set(message)
        if not good or not all(isinstance(message[key], str) for key in ("role", "content")):
            raise UserError(f"a message takes a role and a content, both texts; got {message!r}")
        for key in ("role", "content"):
            check_whole(f"the {key} of a message", message[key])
    if not any(message["content"].strip() for message in messages):
        raise UserError("the messages are empty")


def check_whole(what: str, text: str) -> None:
    if not is_whole(text):
        raise UserError(f"{what} holds half a character (an unpaired surrogate)")


def _check_other_fields(messages: Sequence[Message], tokenizer: Any) -> None:
    """A role or a name is part of the template's own text, so it may not hold its tokens."""
    for message in messages:
        for field, value in message.items():
            if field != "content" and holds_added_token(tokenizer, str(value)):
                raise UserError(f"the {field} of a message holds a special token: {value!r}")
