"""How a text ends: EOS, end of turn, stop strings, a full canvas; and what holds the end back."""

import numpy as np
import pytest

from rho_eos.base.outputs import FinishReason
from rho_eos.decoding.params import DecodeParams
from tests.scripted import (
    END_OF_TURN,
    Guesses,
    encode,
    run_one,
    says,
)


def test_eos_ends_the_text() -> None:
    output = run_one(says("hello"), DecodeParams(policy="fixed", initial_length=12))
    assert (output.text, output.finish_reason) == ("hello", FinishReason.STOP)
    assert output.token_ids == encode("hello")


def test_a_full_canvas_without_eos_is_cut_by_length() -> None:
    output = run_one(says("hello world"), DecodeParams(policy="fixed", initial_length=5))
    assert (output.text, output.finish_reason) == ("hello", FinishReason.LENGTH)


def test_end_of_turn_ends_the_text_as_well() -> None:
    answer = [*encode("yes"), END_OF_TURN, *encode("never shown")]

    def script(prompt: list[int], canvas: list[int], step: int) -> Guesses:
        token = np.array(answer[: len(canvas)])
        return Guesses(token, np.full(len(canvas), 0.95), np.zeros(len(canvas)))

    output = run_one(script, DecodeParams(policy="fixed", initial_length=10, early_stop=False))
    assert (output.text, output.finish_reason) == ("yes", FinishReason.STOP)
    assert output.canvas_token_ids == answer[:10]


def test_early_stop_leaves_the_rest_of_the_canvas_undecoded() -> None:
    params = {"policy": "fixed", "initial_length": 64, "block_length": 1}
    early = run_one(says("hello"), DecodeParams(**params))
    full = run_one(says("hello"), DecodeParams(**params, early_stop=False))
    assert (early.usage.nfe, full.usage.nfe) == (6, 64)
    assert early.token_ids == full.token_ids
    assert early.canvas_token_ids == full.canvas_token_ids  # what was not decoded counts as EOS
    assert early.usage.e_token == full.usage.e_token == 5


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        (("three",), "one two "),
        ("three", "one two "),  # a single string will do
        (("four", "two", "three"), "one "),  # the first to occur, not the first named
        ((" two th",), "one"),
        (("o",), ""),
    ],
)
def test_stop_strings_cut_the_text(stop: tuple[str, ...], expected: str) -> None:
    params = DecodeParams(policy="fixed", initial_length=40, block_length=1, stop=stop)
    output = run_one(says("one two three four"), params)
    assert (output.text, output.finish_reason) == (expected, FinishReason.STOP)
    unstopped = run_one(
        says("one two three four"),
        DecodeParams(policy="fixed", initial_length=40, block_length=1),
    )
    assert output.usage.nfe < unstopped.usage.nfe


def test_a_stop_string_that_does_not_occur_changes_nothing() -> None:
    params = DecodeParams(policy="fixed", initial_length=8, stop=("absent",))
    output = run_one(says("hello world"), params)
    assert (output.text, output.finish_reason) == ("hello wo", FinishReason.LENGTH)


def test_a_stop_string_behind_a_mask_waits_for_the_text_before_it() -> None:
    """Committed text that is not yet part of the prefix may still be behind an end."""

    def script(prompt: list[int], canvas: list[int], step: int) -> Guesses:
        token = np.array(encode("ab STOP cd"))
        return Guesses(token, np.linspace(0.1, 0.8, len(token)), np.zeros(len(token)))

    params = DecodeParams(policy="fixed", initial_length=10, stop=("STOP",))
    output = run_one(script, params)  # commits from right to left
    assert output.text == "ab "
    assert output.usage.nfe == 10
