"""How a text ends: EOS, end of turn, stop strings, a full canvas; and what holds the end back."""

import numpy as np
import pytest

from rho_eos.base.outputs import FinishReason
from rho_eos.decoding.params import DecodeParams
from tests.scripted import (
    END_OF_TURN,
    EOS,
    Guesses,
    ScriptedRunner,
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


def sure_of_eos(prompt: list[int], canvas: list[int], step: int) -> Guesses:
    """Half the canvas is EOS, very likely; the words before it are not."""
    half = len(canvas) // 2
    token = np.array(encode("x") * half + [EOS] * (len(canvas) - half))
    confidence = np.where(token == EOS, 0.99, np.linspace(0.5, 0.1, len(canvas)))
    return Guesses(token, confidence, (token == EOS) * confidence)


def commit_order(params: DecodeParams) -> list[list[int]]:
    output = run_one(ScriptedRunner(sure_of_eos), params)
    return [[position for position, _, _ in record.committed] for record in output.trace]


def test_eos_is_committed_first_unless_deferred() -> None:
    common = {"policy": "fixed", "initial_length": 8, "early_stop": False, "trace": True}
    assert commit_order(DecodeParams(**common)) == [[4, 5, 6, 7], [0], [1], [2], [3]]
    deferred = DecodeParams(**common, defer_eos=True)
    assert commit_order(deferred) == [[0], [1], [2], [3], [4, 5, 6, 7]]


def test_deferred_eos_keeps_the_schedule_of_fixed_length() -> None:
    params = DecodeParams(
        policy="fixed", initial_length=8, steps=3, early_stop=False, trace=True, defer_eos=True
    )
    assert commit_order(params) == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_eos_is_deferred_within_its_block_only() -> None:
    params = DecodeParams(
        policy="fixed",
        initial_length=8,
        block_length=6,
        early_stop=False,
        trace=True,
        defer_eos=True,
    )
    assert commit_order(params) == [[0], [1], [2], [3], [4, 5], [6, 7]]


def test_rho_eos_grows_a_canvas_that_was_too_short_even_in_its_last_step() -> None:
    """The step that commits the last MASK still adjusts: the text goes on instead of being cut."""
    params = DecodeParams(initial_length=4, max_new_tokens=64)
    output = run_one(says("a sentence of thirty characters", confidence=0.95), params)
    assert output.text == "a sentence of thirty characters"
    assert output.finish_reason is FinishReason.STOP


def test_rho_eos_drops_what_it_does_not_need() -> None:
    params = DecodeParams(initial_length=64, max_new_tokens=256, block_length=1)
    output = run_one(says("short"), params)
    assert output.text == "short"
    assert output.usage.contractions > 0
    assert output.usage.n_token < 64
