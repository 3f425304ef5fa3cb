"""The tiny tokenizer: any text comes back, and the tasks' words and numbers are single tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from rho_eos.embedded.tasks import TASKS, held_out
from rho_eos.embedded.tokenizer import build_tokenizer
from rho_eos.models.known import EMBEDDED


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer()


@given(st.text())
def test_any_text_round_trips(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_numbers_below_a_hundred_are_single_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    for number in range(100):
        assert len(tokenizer.encode(f"{number}")) == 1
        assert len(tokenizer.encode(f" {number}")) == 1


@pytest.mark.parametrize("before", ["", "\n", "Then: ", "    # "])
def test_a_label_is_one_token_wherever_its_item_begins(
    tokenizer: PreTrainedTokenizerFast, before: str
) -> None:
    label = tokenizer.get_vocab()["12)"]
    assert label in tokenizer.encode(f"{before}12) buys 3")
    assert label not in tokenizer.encode(f"{before}(3 + 12) - (4 + 1)")


def test_answers_need_no_bytes(tokenizer: PreTrainedTokenizerFast) -> None:
    for name in TASKS:
        for problem in held_out(name, 30):
            pieces = [tokenizer.decode([i]) for i in tokenizer.encode(problem.answer)]
            letters = [piece for piece in pieces if len(piece) == 1 and piece.isalpha()]
            assert set(letters) <= set("xnabmvf")


def test_the_chat_template_is_llada_s(tokenizer: PreTrainedTokenizerFast) -> None:
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, tokenize=False
    )
    assert text == (
        "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_it_survives_saving(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = "Zorblat has 12 apples.\n    if x % 2 == 0:  # ünïcode ×"
    assert loaded.encode(text) == tokenizer.encode(text)
    assert loaded.mask_token_id == tokenizer.mask_token_id
    assert loaded.chat_template == tokenizer.chat_template


def test_the_shipped_tokenizer_is_the_one_the_code_builds(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    for folder in EMBEDDED.values():
        assert AutoTokenizer.from_pretrained(folder).get_vocab() == tokenizer.get_vocab()
