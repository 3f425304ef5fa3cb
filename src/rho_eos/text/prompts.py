"""From what a user gives (text, messages, token ids) to the token ids the model sees."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rho_eos.base.errors import UserError
from rho_eos.text.chat_template import render, start
from rho_eos.text.user_text import TextEncoder, is_whole, tokenizing

#: A text, or token ids.
Given = str | Sequence[int]
Message = Mapping[str, Any]
#: A text, a conversation, token ids, or a mapping that holds one of them under its name.
Prompt = str | Sequence[int] | Sequence[Message] | Mapping[str, Any]

_KINDS = ("prompt", "messages", "prompt_token_ids")
#: Stands for a user's text in a rendered template; templates that trim a text lose the outer signs,
#: which count as whitespace.
_MARK = "\x1c\x1a{}\x1a\x1c"
_FOUND = re.compile("(\x1c?)\x1a([0-9]+)\x1a(\x1c?)")


class Encoder:
    """Token ids of prompts and other text for one model.

    Args:
        tokenizer: The model's; None if it has none, and then everything is given as token ids.
        vocabulary: How many token ids the model knows.
    """

    def __init__(self, tokenizer: Any, vocabulary: int) -> None:
        self.tokenizer = tokenizer
        self.vocabulary = vocabulary
        if tokenizer is not None:
            self.texts = TextEncoder(tokenizer)
            start(tokenizer)

    @property
    def beginning(self) -> list[int]:
        """What stands before a document."""
        start = None if self.tokenizer is None else self.tokenizer.bos_token_id
        return [] if start is None else [int(start)]

    def prompt(
        self, prompt: Prompt | None, raw: bool = False, answer_prefix: str = ""
    ) -> list[int]:
        """Token ids for any kind of prompt. A text is a user's message unless `raw`."""
        kind, content = kind_of(prompt)
        if kind == "prompt_token_ids":
            return self.ids(kind, content)
        self.check_tokenizer(f"prompt_token_ids instead of {kind}")
        if kind == "prompt":
            if not isinstance(content, str) or not content.strip():
                raise UserError("the prompt is empty")
            check_whole("the prompt", content)
            if raw or self.tokenizer.chat_template is None:
                return self.texts.encode(content + answer_prefix, add_special_tokens=True)
            content = [{"role": "user", "content": content}]
        return self._chat(content, answer_prefix)

    def text(self, what: str, text: str) -> list[int]:
        """The ids of a piece of text that is no prompt, and nothing around them."""
        self.check_tokenizer(f"{what} as token ids")
        check_whole(what, text)
        return self.texts.encode(text)

    def ids(self, what: str, ids: Any, also: str = "") -> list[int]:
        """Check that what was given is token ids of this model, and return them as a list."""
        listed = isinstance(ids, Sequence) and not isinstance(ids, str | bytes)
        if not listed or not ids or not all(type(token) is int for token in ids):
            raise UserError(f"{what} takes a {also}non-empty list of integers")
        for token in ids:
            if not 0 <= token < self.vocabulary:
                raise UserError(f"{what} holds {token}; the vocabulary has {self.vocabulary} ids")
        return list(ids)

    def decode(self, ids: list[int]) -> str:
        """The text of token ids, without special tokens; nothing where there is no tokenizer."""
        if self.tokenizer is None:
            return ""
        with tokenizing():
            return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    def check_tokenizer(self, instead: str) -> None:
        if self.tokenizer is None:
            raise UserError(f"this model has no tokenizer: give {instead}")

    def _chat(self, messages: Sequence[Message], answer_prefix: str) -> list[int]:
        """A conversation in the tokenizer's chat template, ready for the assistant's turn.

        Tokens that a user writes out literally stay text: only the template's own are parsed. Which
        ones those are shows where the template is rendered with marks in place of the contents.
        """
        _check_messages(messages)
        if self.tokenizer.chat_template is None:
            text = "\n\n".join(message["content"] for message in messages)
            return self.texts.encode(text + answer_prefix, add_special_tokens=True)
        self._check_other_fields(messages)
        marked = [_marked(message, number) for number, message in enumerate(messages)]
        alone = render(self.tokenizer, marked)
        text = render(self.tokenizer, messages) + answer_prefix
        if not is_whole(alone + text):  # the messages themselves are whole
            raise UserError("the model's chat template writes half a character")
        ids = self.texts.parse(text)
        if self.texts.added_among(ids) == self.texts.added_among(self.texts.parse(alone)):
            return ids
        contents = [message["content"] for message in messages] + [answer_prefix]
        return self._encode_marked(alone + _MARK.format(len(messages)), contents)

    def _encode_marked(self, template: str, contents: Sequence[str]) -> list[int]:
        """The template's own tokens, and the text between them with the contents back in place."""

        def content(mark: re.Match[str]) -> str:
            text = contents[int(mark[2])]
            text = text if mark[1] else text.lstrip()
            return text if mark[3] else text.rstrip()

        ids: list[int] = []
        for piece in self.texts.split_at_added(template):
            if isinstance(piece, int):
                ids.append(piece)
            elif "\x1a" in _FOUND.sub("", piece):
                raise UserError(
                    "a message holds a special token of the model, and the model's chat template "
                    "changes messages, so that it cannot be kept as text"
                )
            elif piece:
                ids += self.texts.encode(_FOUND.sub(content, piece))
        return ids

    def _check_other_fields(self, messages: Sequence[Message]) -> None:
        """Refuse special tokens in a role or a name, which the template writes as text of its
        own."""
        for message in messages:
            for field, value in message.items():
                if field != "content" and self.texts.holds_added(str(value)):
                    raise UserError(f"the {field} of a message holds a special token: {value!r}")


def kind_of(prompt: Prompt | None) -> tuple[str, Any]:
    """The name that a prompt goes by (`prompt`, `messages`, `prompt_token_ids`), and what it
    holds."""
    if isinstance(prompt, Mapping):
        kinds = [kind for kind in _KINDS if kind in prompt]
        if len(kinds) != 1:
            raise UserError(f"a prompt holds exactly one of {', '.join(_KINDS)}; found {kinds}")
        return kinds[0], prompt[kinds[0]]
    if isinstance(prompt, str):
        return "prompt", prompt
    if prompt is not None and (not isinstance(prompt, Sequence) or isinstance(prompt, bytes)):
        raise UserError(f"a prompt is a text, messages or token ids, not {type(prompt).__name__}")
    if not prompt:
        raise UserError("the prompt is empty")
    return ("messages" if isinstance(prompt[0], Mapping) else "prompt_token_ids"), prompt


def listed(given: Any) -> Any:
    """A list in place of an array, since rollouts hand out token ids as arrays."""
    return given.tolist() if isinstance(given, np.ndarray) else given


def as_list(prompts: Prompt | Sequence[Prompt | None]) -> list[Prompt | None]:
    """The prompts of an argument that may be one prompt or several."""
    prompts = listed(prompts)
    if not hasattr(prompts, "__len__"):
        raise UserError(f"prompts takes one prompt or a list of them, not {prompts!r:.40}")
    ids = len(prompts) > 0 and not isinstance(prompts, Mapping) and isinstance(prompts[0], int)
    return [prompts] if ids or isinstance(prompts, str | Mapping) else list(prompts)  # type: ignore[list-item, arg-type]


def as_messages(prompt: str | Sequence[Message] | None) -> Prompt | None:
    """The messages of a conversation. A question is one with a single message."""
    if prompt is None:
        return None
    single = isinstance(prompt, str)
    return {"messages": [{"role": "user", "content": prompt}] if single else prompt}


def check_whole(what: str, text: str) -> None:
    if not is_whole(text):
        raise UserError(f"{what} holds half a character (an unpaired surrogate)")


def _marked(message: Message, number: int) -> Message:
    # Templates may ask whether there is a content at all, so an empty one stays as it is.
    blank = not message["content"].strip()
    return message if blank else {**message, "content": _MARK.format(number)}


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
