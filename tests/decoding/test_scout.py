"""Scout on scripted models: one that knows its answer, and one that compresses it to fit."""

import numpy as np
import pytest

from rho_eos.base.outputs import Output
from rho_eos.decoding.params import DecodeParams
from tests.scripted import END_OF_TURN, EOS, Guesses, Script, encode, engine_of, run_all, says

FULL = "".join(chr(ord("a") + at % 26) for at in range(150))
BRIEF = FULL[:20].upper()
SHORT = 32  # MASKs of the canvas that is tried beside the first one


def compresses(full: str = FULL, brief: str = BRIEF, confidence: float = 0.95) -> Script:
    """The full answer where the canvas has room for all of it, a brief one where it has not; what
    is committed stays, and what follows it is the rest of whichever the canvas has room for."""

    def script(prompt: list[int], canvas: list[int], step: int) -> Guesses:
        answer = encode(full if len(canvas) >= len(full) else brief)
        token = np.array((answer + [EOS] * len(canvas))[: len(canvas)])
        sure = np.full(len(canvas), confidence)
        return Guesses(token, sure, (token == EOS) * confidence)

    return script


def wavers(text: str) -> Script:
    """It foretells something else on a short canvas, and is not to be trusted."""

    def script(prompt: list[int], canvas: list[int], step: int) -> Guesses:
        return says(text if len(canvas) > SHORT else text.upper(), 0.95)(prompt, canvas, step)

    return script


def decode(script: Script, **params: object) -> Output:
    engine = engine_of(script)
    engine.add("only", encode("?"), DecodeParams(trace=True, **params))
    return run_all(engine)["only"]


def looks(output: Output) -> list[int]:
    """The canvases on which nothing was committed."""
    return [record.length for record in output.trace if not record.committed]


@pytest.mark.parametrize("start", [16, 64, 256, 512])
def test_it_writes_on_a_short_canvas_whatever_it_started_with(start: int) -> None:
    output = decode(says(FULL, confidence=0.95), policy="scout", initial_length=start)
    assert output.text == FULL
    lengths = [record.length for record in output.trace]
    written = np.cumsum([len(record.committed) for record in output.trace])
    assert lengths[0] == 256
    for before, length in zip(written[:-1], lengths[1:], strict=True):
        assert length <= before - before % 32 + 32  # to the end of the block that is being written
    assert output.usage.e_ratio >= 0.85


def test_without_blocks_it_has_room_for_32_more() -> None:
    output = decode(says(FULL, confidence=0.5), policy="scout", block_length=None)
    assert output.text == FULL
    lengths = [record.length for record in output.trace[1:]]  # one token a step
    assert lengths[:100] == [written + 32 for written in range(1, 101)]


@pytest.mark.parametrize(
    ("answer", "start", "expected"),
    [
        (128, 64, []),  # it ends in the first half of 256
        (129, 64, [256]),  # some of it may have been left out: 512 says
        (600, 64, [256]),  # longer than the longest look: it goes on all the same
        (600, 1024, [512]),  # who asks for a longer start gets it
    ],
)
def test_a_longer_canvas_is_looked_at_where_a_shorter_may_mislead(
    answer: int, start: int, expected: list[int]
) -> None:
    text = (FULL * 4)[:answer]
    script = compresses(text, BRIEF)
    if answer > 512:  # on no canvas of a look is there room for all of it
        script = wavers(text)
    output = decode(script, policy="scout", initial_length=start)
    assert output.text == text
    assert looks(output) == expected


@pytest.mark.parametrize("answer", [150, 250, 600])
def test_a_model_that_is_trusted_needs_no_longer_canvas(answer: int) -> None:
    text = (FULL * 4)[:answer]
    output = decode(says(text, confidence=0.95), policy="scout")
    assert output.text == text
    assert looks(output) == []
    assert max(record.length for record in output.trace[1:]) <= answer + 31


@pytest.mark.parametrize("start", [16, 64, 512])
def test_a_model_that_compresses_does_not_deceive_it(start: int) -> None:
    output = decode(compresses(), policy="scout", initial_length=start)
    assert output.text == FULL
    assert looks(output) == [256]
    assert decode(compresses(), policy="rho-eos", initial_length=64).text != FULL


def test_nor_does_one_whose_end_comes_nearer_for_a_moment() -> None:
    """It leaves out its last words where it has less than 60 MASKs to spare: a canvas that
    followed every end in sight would take them away."""

    def script(prompt: list[int], canvas: list[int], step: int) -> Guesses:
        end = len(FULL) - (20 if step == 9 else 0)
        if len(canvas) < len(FULL) + 60:
            end = len(canvas) - 70
        said = FULL[:end] if len(canvas) > SHORT else BRIEF
        return says(said, 0.5)(prompt, canvas, step)  # one token a step

    output = decode(script, policy="scout")
    assert output.text == FULL
    assert {record.length for record in output.trace[2:]} == {len(FULL) * 3 // 2}


@pytest.mark.parametrize(("margin", "kept"), [(8, 75), (100, 100)])
def test_room_that_a_model_gets_whose_end_was_hidden_for_a_moment_goes_again(
    margin: int, kept: int
) -> None:
    def script(prompt: list[int], canvas: list[int], step: int) -> Guesses:
        said = FULL if len(canvas) > SHORT else BRIEF
        guesses = says(said, 0.5)(prompt, canvas, step)  # one token a step
        if step > 2 and step % 5 == 0:
            guesses.token[-1] = encode("x")[0]
        return guesses

    output = decode(script, policy="scout", margin=margin)
    assert output.text == FULL
    lengths = [record.length for record in output.trace[2:]]
    assert min(lengths) == len(FULL) + kept
    assert max(lengths) == len(FULL) + kept + max(margin, 32)


def test_an_end_that_is_seen_late_is_believed_where_none_was_seen_before() -> None:
    short = FULL[:30]

    def script(prompt: list[int], canvas: list[int], step: int) -> Guesses:
        said = FULL * 5 if step < 2 else short
        return says(said if len(canvas) > SHORT else BRIEF, 0.5)(prompt, canvas, step)

    output = decode(script, policy="scout")
    assert looks(output) == [256]
    assert output.usage.n_token == 30 + 32


def test_nor_does_one_that_leaves_out_only_the_last_steps() -> None:
    """It begins alike on every canvas, so that only its early end betrays it."""
    full, brief = FULL[:120], FULL[:90]
    output = decode(compresses(full, brief), policy="scout")
    assert output.text == full
    [doubted] = looks(output)
    assert 90 < doubted < 120


def test_nor_one_whose_style_a_short_canvas_changes_and_not_its_length() -> None:
    output = decode(compresses(brief=FULL.upper()), policy="scout")
    assert output.text == FULL
    assert min(record.length for record in output.trace[1:]) >= len(FULL)


def test_what_it_is_unsure_of_may_differ() -> None:
    """Guesses of what nobody can know yet change with every canvas, and mean nothing."""

    def script(prompt: list[int], canvas: list[int], step: int) -> Guesses:
        wild = FULL[:20] + ("x" if len(canvas) > SHORT else "y") * 12 + FULL[32:]
        guesses = says(FULL if step else wild, 0.95)(prompt, canvas, step)
        guesses.confidence[20:32] = 0.95 if step else 0.08
        return guesses

    output = decode(script, policy="scout")
    assert output.text == FULL
    assert output.trace[1].length < 80  # it trusts the short canvas


def test_an_early_end_that_a_long_canvas_shows_too_is_believed() -> None:
    """The first forwards promise a long text; later ones, on any canvas, a short one."""
    short = FULL[:60]

    def script(prompt: list[int], canvas: list[int], step: int) -> Guesses:
        return says(FULL if step < 33 else short, 0.5)(prompt, canvas, step)  # one token a step

    output = decode(script, policy="scout")
    assert output.text == short
    assert len(looks(output)) == 1  # the doubt
    assert output.usage.n_token < 80  # it does not keep the room that it looked into


def test_with_the_cache_there_is_room_for_all_of_the_text() -> None:
    """To make room takes a refresh, and to have it costs little."""
    cached = DecodeParams(policy="scout", cache="window").model_dump()
    assert (cached["ahead"], cached["margin"]) == (256, 16)
    assert DecodeParams(policy="scout", cache="window", ahead=8).model_dump()["ahead"] == 8
    output = decode(says(FULL, 0.5), policy="scout", ahead=256)
    assert output.text == FULL
    assert looks(output) == []
    assert {record.length for record in output.trace[1:]} == {len(FULL) + 8}
    output = decode(compresses(), policy="scout", ahead=256)
    assert output.text == FULL
    assert looks(output) == [256]


def test_it_says_what_a_look_and_a_doubt_found_out() -> None:
    """In as many words as there are findings, and with no share rounded up."""

    def script(prompt: list[int], canvas: list[int], step: int) -> Guesses:
        guesses = says(FULL, 0.95)(prompt, canvas, step)
        if len(canvas) == SHORT:  # 28 of 32 and a little: 89.7% by confidence
            guesses.token[:4] = encode("WXYZ")
            guesses.confidence[:4] = 0.763
        return guesses

    assert " 89% " in decode(script, policy="scout").trace[0].note
    for model, findings in ((says(FULL, 0.95), 1), (compresses(FULL[:120], FULL[:90]), 2)):
        notes = [record.note for record in decode(model, policy="scout").trace]
        assert notes[0] and sum(map(bool, notes)) == findings


def test_without_room_to_look_it_goes_on() -> None:
    for limit in (20, 40):
        output = decode(says(FULL), policy="scout", initial_length=8, max_new_tokens=limit)
        assert output.text == FULL[:limit]
        assert output.trace[-1].length == limit


@pytest.mark.parametrize("block", [1, 4, 12, 32, 64, None])
def test_however_short_its_blocks_a_short_canvas_is_tried_on_32_tokens(block: int | None) -> None:
    """A brief answer that begins as the full one does: a few tokens agree and say nothing."""
    script = compresses(brief=FULL[:6] + BRIEF)
    output = decode(script, policy="scout", block_length=block)
    assert output.text == FULL
    assert min(record.length for record in output.trace) >= len(FULL)
    tried = {12: 36, 64: 64}.get(block or 1, 32)
    assert output.trace[0].computed == 1 + 256 + 1 + tried


def test_an_end_that_is_committed_is_not_doubted() -> None:
    """The end of the turn is sure before all of the text is: to look again would change nothing."""

    def script(prompt: list[int], canvas: list[int], step: int) -> Guesses:
        guesses = says(FULL, 0.5)(prompt, canvas, step)  # one token a step
        if step >= 19:
            guesses.token[24], guesses.confidence[24] = END_OF_TURN, 0.95
        if step >= 20:
            guesses.token[25:] = EOS
        return guesses

    output = decode(script, policy="scout")
    assert output.text == FULL[:24]
    assert looks(output) == []
