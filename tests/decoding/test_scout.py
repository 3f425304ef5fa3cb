"""Scout on scripted models: one that knows its answer, and one that compresses it to fit."""

import numpy as np
import pytest

from rho_eos.decoding.params import DecodeParams
from rho_eos.outputs import Output
from tests.scripted import EOS, Guesses, Script, encode, engine_of, run_all, says

FULL = "".join(chr(ord("a") + at % 26) for at in range(150))
BRIEF = FULL[:20].upper()


def compresses(full: str = FULL, brief: str = BRIEF, confidence: float = 0.95) -> Script:
    """The full answer where the canvas has room for all of it, a brief one where it has not; what
    is committed stays, and what follows it is the rest of whichever the canvas has room for."""

    def script(prompt: list[int], canvas: list[int], step: int) -> Guesses:
        answer = encode(full if len(canvas) >= len(full) else brief)
        token = np.array((answer + [EOS] * len(canvas))[: len(canvas)])
        sure = np.full(len(canvas), confidence)
        return Guesses(token, sure, (token == EOS) * confidence)

    return script


def decode(script: Script, **params: object) -> Output:
    engine = engine_of(script)
    engine.add("only", encode("?"), DecodeParams(trace=True, **params))
    return run_all(engine)["only"]


@pytest.mark.parametrize("start", [16, 64, 256, 512])
def test_it_writes_on_a_short_canvas_whatever_it_started_with(start: int) -> None:
    output = decode(says(FULL, confidence=0.95), policy="scout", initial_length=start)
    assert output.text == FULL
    lengths = [record.length for record in output.trace]
    written = np.cumsum([len(record.committed) for record in output.trace])
    looked = next(at for at, length in enumerate(lengths) if length >= 512)
    assert looked == (0 if start == 512 else 1)
    for at, length in enumerate(lengths[looked + 1 :], start=looked):
        assert length <= written[at] + 64 + 8 + 8  # ahead, what is appended with it, or not dropped
    assert output.usage.e_ratio >= 0.85


@pytest.mark.parametrize("start", [16, 64, 512])
def test_a_model_that_compresses_does_not_deceive_it(start: int) -> None:
    output = decode(compresses(), policy="scout", initial_length=start)
    assert output.text == FULL
    looks = [record for record in output.trace if not record.committed]
    assert len(looks) == (1 if start == 512 else 2)  # the first look, and the doubt
    for rival in ("frontier", "rho-eos"):
        assert decode(compresses(), policy=rival, initial_length=64).text != FULL


def test_nor_does_one_that_leaves_out_only_the_last_steps() -> None:
    full, brief = FULL[:120], FULL[:90]
    assert decode(compresses(full, brief), policy="scout").text == full


def test_an_early_end_that_a_long_canvas_shows_too_is_believed() -> None:
    """The first forward promises a long text; later ones, on any canvas, a short one."""
    short = FULL[:60]

    def script(prompt: list[int], canvas: list[int], step: int) -> Guesses:
        return says(FULL if step == 0 else short, 0.5)(prompt, canvas, step)  # one token a step

    output = decode(script, policy="scout")
    assert output.text == short
    assert sum(not record.committed for record in output.trace) == 1
    assert output.usage.n_token < 80  # it does not keep the room that it looked into


def test_without_room_to_look_it_goes_on() -> None:
    output = decode(says(FULL), policy="scout", initial_length=8, max_new_tokens=40)
    assert output.text == FULL[:40]
    assert max(record.length for record in output.trace) == 40
