"""litellm with what it sends by itself."""

from typing import Any

import litellm
from conftest import PROBLEM, is_right

USER = {"role": "user", "content": PROBLEM}


def ask(url: str, *messages: Any, **fields: Any) -> Any:
    return litellm.completion(
        model="openai/tiny", api_base=url, api_key="unused", messages=list(messages), **fields
    )


def test_an_answer_and_a_stream(url: str) -> None:
    whole = ask(url, USER)
    text = whole.choices[0].message.content
    assert is_right(text) and whole.usage.completion_tokens > 0
    pieces = [chunk.choices[0].delta.content or "" for chunk in ask(url, USER, stream=True)]
    assert "".join(pieces) == text


def test_an_answer_is_taken_back_as_it_came(url: str) -> None:
    first = ask(url, USER).choices[0].message
    for earlier in (first, first.model_dump()):
        assert ask(url, USER, earlier, USER).choices[0].finish_reason in ("stop", "length")


def test_fields_of_openais_own(url: str) -> None:
    answer = ask(url, USER, user="me", temperature=0, n=1, max_tokens=128, logprobs=True)
    assert is_right(answer.choices[0].message.content)
    assert answer.choices[0].logprobs.content


def test_a_text_completion(url: str) -> None:
    answer = litellm.text_completion(
        model="text-completion-openai/tiny",
        api_base=url,
        api_key="unused",
        prompt="1) buys 6.",
        max_tokens=32,
    )
    assert isinstance(answer.choices[0].text, str)
