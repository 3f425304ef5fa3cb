import pytest

from rho_eos.base.errors import UserError
from rho_eos.text.prompts import Encoder
from tests.checkpoints import byte_tokenizer

CHAT = byte_tokenizer()
BASE = byte_tokenizer(chat_template=None)
VOCABULARY = len(CHAT)


def encode(prompt, tokenizer=CHAT, **options):
    return Encoder(tokenizer, VOCABULARY).prompt(prompt, **options)


def test_a_base_model_gets_plain_text() -> None:
    """What a chat template makes of messages is tested with what users write (test_user_text)."""
    assert BASE.decode(encode("hi", BASE)) == "hi"
    assert encode("hi") == encode([{"role": "user", "content": "hi"}])


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "the prompt is empty"),
        ({"messages": []}, "messages takes a non-empty list"),
        ({"messages": [{"role": "user", "content": " "}]}, "the messages are empty"),
        ({"messages": [{"role": "user"}]}, "a message takes a role and a content"),
        ({"prompt_token_ids": []}, "a non-empty list of integers"),
        ({"prompt_token_ids": [1, VOCABULARY]}, f"holds {VOCABULARY}"),
        ({"prompt_token_ids": [1.5]}, "a non-empty list of integers"),
        ({"prompt": "a", "messages": []}, "exactly one of prompt, messages, prompt_token_ids"),
    ],
)
def test_what_is_no_prompt_is_refused(prompt, message) -> None:
    with pytest.raises(UserError, match=message):
        encode(prompt)


def test_without_a_tokenizer_only_token_ids_work() -> None:
    assert encode([1, 2], None) == [1, 2]
    with pytest.raises(UserError, match="no tokenizer: give prompt_token_ids"):
        encode("hi", None)
