"""What comes back of rows that give up, keep a minimum, or end by what their policy takes away."""

import numpy as np
import pytest

from rho_eos.base.outputs import FinishReason, Output
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.params import DecodeParams
from rho_eos.engine.request import Handle
from rho_eos.views.narration import explain
from tests.scripted import (
    END_OF_TURN,
    EOS,
    FIRST_BYTE,
    MASK,
    Guesses,
    RecordingEngine,
    Script,
    ScriptedRunner,
    encode,
    run_all,
    says,
)

EXPAND = FIRST_BYTE + 200
SPECIAL = SpecialTokens(mask=MASK, eos=EOS, end_of_turn=END_OF_TURN, expand=EXPAND)
LETTERS = "abcdefghij"


def decode(script: Script, prompt: list[int] | None = None, **how: object) -> tuple[Handle, Output]:
    """By `dreamon`, of scripted models the surest first; what is no parameter is the request's."""
    request = {name: how.pop(name) for name in ("suffix", "canvas", "gaps", "texts") if name in how}
    params = {"policy": "dreamon", "order": "maskgit_plus", "max_new_tokens": 16} | how
    if params["policy"] != "dreamon":
        del params["order"]
    engine = RecordingEngine(ScriptedRunner(script), SPECIAL)
    asked = DecodeParams(**params)
    handle = engine.add("only", encode("?") if prompt is None else prompt, asked, **request)
    return handle, run_all(engine)["only"]


def in_order(*positions: int) -> Script:
    """A letter for each position of the canvas; these are decided first."""

    def script(prompt: list[int], canvas: list[int], step: int) -> Guesses:
        confidence = np.full(len(canvas), 0.1)
        if step < len(positions):
            confidence[positions[step]] = 0.9
        letters = encode(LETTERS * 4)[: len(canvas)]
        return Guesses(np.array(letters), confidence, np.zeros(len(canvas)))

    return script


def wants_no_more(prompt: list[int], canvas: list[int], step: int) -> Guesses:
    """EOS everywhere, and surest of it at the end."""
    confidence = np.linspace(0.1, 0.9, len(canvas))
    return Guesses(np.full(len(canvas), EOS), confidence, confidence)


#: Two gaps of three, "XY" between them, and text or nothing behind.
TEMPLATE = {
    "canvas": [*[MASK] * 3, *encode("XY"), *[MASK] * 3],
    "gaps": [0, 0, 0, -1, -1, 1, 1, 1],
    "texts": ("<", "XY", ""),
}


@pytest.mark.parametrize("behind", ["", ">"])
def test_a_template_that_gives_up_returns_its_text_and_all_it_has(behind: str) -> None:
    parts = TEMPLATE | {"texts": ("<", "XY", behind), "suffix": encode(behind)}
    _, output = decode(in_order(1, 6, 7), initial_length=8, steps=3, **parts)
    assert output.finish_reason is FinishReason.LENGTH
    assert output.gaps == ["b", "gh"]
    assert output.text == f"<bXYgh{behind}"
    assert output.token_ids == encode("bgh")
    assert output.token_positions == [1, 6, 7]


def test_commits_stand_beside_the_tokens_that_come_back() -> None:
    for parts in ({"suffix": encode("zz")}, TEMPLATE):
        _, output = decode(in_order(1, 6, 7), initial_length=8, steps=3, **parts)
        line = output.as_dict(commits=True)
        assert line["token_ids"] == encode("bgh")
        assert line["commit_steps"] == [0, 1, 2]
        assert line["commit_probabilities"] == [0.9, 0.9, 0.9]


@pytest.mark.parametrize(("stop", "text"), [((), "afg"), (("g",), "af"), (("f",), "a")])
def test_a_stop_string_in_what_a_row_gives_up_with_cuts_just_there(
    stop: tuple[str, ...], text: str
) -> None:
    how = {"initial_length": 8, "steps": 3, "suffix": encode("zz"), "stop": list(stop)}
    handle, output = decode(in_order(0, 5, 6), **how)
    assert output.text == text
    assert output.token_ids == encode(text)
    assert "".join(event.delta for event in handle.events) == text


@pytest.mark.parametrize("steps", [1, 3, 5, 10])
def test_the_cache_does_not_prolong_what_is_to_give_up(steps: int) -> None:
    how = {"initial_length": 32, "max_new_tokens": 32, "steps": steps, "suffix": encode("zz")}
    _, cached = decode(in_order(), cache="window", cache_window=4, **how)
    _, exact = decode(in_order(), **how)
    assert cached.usage.nfe == exact.usage.nfe == steps
    assert cached.finish_reason is exact.finish_reason is FinishReason.LENGTH
    if steps > 3:
        assert cached.usage.refreshes < steps


def test_many_expansions_are_not_taken_for_a_policy_without_an_end() -> None:
    def script(prompt: list[int], canvas: list[int], step: int) -> Guesses:
        guesses = wants_no_more(prompt, canvas, step)
        guesses.token[:] = EOS if step % 2 else EXPAND
        return guesses

    how = {"initial_length": 2, "expansions": 200, "steps": 1000, "min_new_tokens": 2}
    handle, output = decode(script, suffix=encode("zz"), **how)
    assert handle.error is None
    assert output.usage.nfe >= 400


def test_what_the_model_deletes_at_the_end_completes_the_text() -> None:
    """EOS at a MASK takes it away, so that none is left to say that the text has ended."""

    def script(prompt: list[int], canvas: list[int], step: int) -> Guesses:
        token = np.array((encode("abcd") + [EOS] * len(canvas))[: len(canvas)])
        return Guesses(token, np.linspace(0.9, 0.1, len(canvas)), (token == EOS) * 0.1)

    _, output = decode(script, initial_length=8)
    assert (output.text, output.finish_reason) == ("abcd", FinishReason.STOP)
    _, output = decode(script, initial_length=8, steps=2)
    assert (output.text, output.finish_reason) == ("ab", FinishReason.LENGTH)


@pytest.mark.parametrize("prompt", [encode("?"), [*encode("?"), EOS]])
def test_what_is_deleted_leaves_a_minimum(prompt: list[int]) -> None:
    """An EOS in the prompt, too, is one that MASKs stand behind."""
    how = {"initial_length": 8, "max_new_tokens": 8, "suffix": encode("zz")}
    _, output = decode(wants_no_more, prompt, min_new_tokens=5, **how)
    assert len(output.token_ids) == 5
    _, output = decode(wants_no_more, prompt, **how)
    assert output.token_ids == []


@pytest.mark.parametrize("least", [0, 2, 4, 6])
def test_given_text_does_not_count_towards_a_minimum(least: int) -> None:
    """The last gap may end where so many tokens of the gaps, not of the canvas, are there."""
    how = {"policy": "fixed", "initial_length": 8, "min_new_tokens": least}
    _, output = decode(says("", 0.95), **TEMPLATE, **how)
    assert len(output.token_ids) == max(3, least)


def test_a_gap_without_text_behind_it_is_not_said_to_be_written_before_it_is() -> None:
    how = {"policy": "cal", "initial_length": 8, "max_new_tokens": 12, "trace": True}
    _, output = decode(says("", 0.95), **TEMPLATE, **how)
    params = DecodeParams(policy="cal")
    told = {
        explain(params, each): len(each.committed) for each in output.trace if each.signal is None
    }
    assert (
        told.pop("No text behind this gap says how long it is: it gets all the room that is left.")
        == 0
    )
    assert told and all(told.values())


def test_tokens_of_a_stream_are_never_taken_back() -> None:
    """What may be the beginning of a stop string is not final before that is known."""
    text = "one two three twin END more"
    for stop in (["tw"], ["END"], ["th!", "twi!"], ["three t!"]):
        how = {"policy": "fixed", "initial_length": 64, "max_new_tokens": 64, "logprobs": 0}
        handle, output = decode(says(text, 0.5), stop=stop, **how)
        seen: list[int] = []
        for event in handle.events:
            assert event.token_ids[: len(seen)] == seen
            assert event.logprobs is not None
            assert [each.token for each in event.logprobs] == event.token_ids
            seen = event.token_ids
        assert seen == output.token_ids


def test_where_nothing_is_final_there_are_no_log_probabilities() -> None:
    how = {"policy": "released", "initial_length": 16, "max_new_tokens": 32, "logprobs": 1}
    handle, _ = decode(says("hello", 0.5), **how)
    for event in handle.events:
        assert event.logprobs is not None
        assert [each.token for each in event.logprobs] == event.token_ids
