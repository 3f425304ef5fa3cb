"""The policy `released` against its rule written down naively, on models without sense.

The rule is docs/method.md §8: what the published code does at batch size 1, its faults included.
"""

import math

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rho_eos.decoding.params import DecodeParams
from tests.scripted import EOS, MASK, Guesses, Script, arbitrary, encode, engine_of, run_all


def eos_confidence(guesses: Guesses) -> float:
    total, counted = 0.0, 0
    for token, probability in zip(guesses.token[::-1], guesses.eos[::-1], strict=True):
        if token == EOS and counted < 32:
            total += probability
            counted += 1
    return total / 32


def naive_released(script: Script, length: int, limit: int, block: int) -> list[int]:
    """τ 0.9, region [0.4, 0.8], exponential E with base 8 and cap 8, horizon 64."""
    canvas = [MASK] * length
    start, frozen = 0, False
    for step in range(limit):
        guesses = script(encode("?"), canvas, step)
        signal = eos_confidence(guesses)
        end = min(start + block, len(canvas))
        open_ = [at for at in range(start, end) if canvas[at] == MASK]
        sure = [at for at in open_ if guesses.confidence[at] > 0.9]
        if open_ and not sure:
            sure = [max(open_, key=lambda at: (guesses.confidence[at], -at))]
        for at in sure:
            canvas[at] = int(guesses.token[at])
        frozen = frozen or len(canvas) >= limit
        if not frozen and step < 64 and not 0.4 <= signal <= 0.8:
            far = 0.4 - signal if signal < 0.4 else signal - 0.8
            change = 8 * min(8, 2 ** (max(1, math.ceil(far / 0.1 - 1e-9)) - 1))
            if signal < 0.4:
                canvas += [MASK] * min(change, limit - len(canvas))
            else:
                canvas = canvas[: max(0, len(canvas) - change)]
        if len(sure) == len(open_):
            start = end
        start = min(start, len(canvas))
        if start >= len(canvas):
            break
    return [EOS if token == MASK else token for token in canvas]


def released(script: Script, length: int, limit: int, block: int) -> tuple[list[int], bool]:
    """The final canvas, and whether a step was made on a canvas without a MASK."""
    engine = engine_of(script)
    params = DecodeParams(
        policy="released",
        initial_length=length,
        max_new_tokens=limit,
        block_length=block,
        early_stop=False,
    )
    engine.add("only", encode("?"), params)
    output = run_all(engine)["only"]
    went_on = any(not (step.before == MASK).any() for step in engine.steps["only"])
    return output.canvas_token_ids, went_on


shares = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1))
scripts = st.builds(
    arbitrary,
    seed=st.integers(0, 2**32),
    eos_shares=st.lists(shares, min_size=1, max_size=6),
    sure=st.sampled_from([0.0, 0.2, 0.9]),
)


@settings(max_examples=200, deadline=None)
@given(scripts, st.integers(1, 96), st.integers(1, 128), st.sampled_from([4, 16, 32]))
@example(arbitrary(1, [0.0, 1.0], 0.9), 40, 128, 16)
def test_the_same_canvas_as_the_naive_rule(
    script: Script, length: int, limit: int, block: int
) -> None:
    length = min(length, limit)
    canvas, _ = released(script, length, limit, block)
    assert canvas == naive_released(script, length, limit, block)


def test_it_goes_on_when_a_contraction_has_removed_the_last_mask_before_its_window_moved() -> None:
    """What is left is full, but its window has not reached the end of the canvas: it makes another
    step there, in which the canvas may grow again."""
    scripts = [arbitrary(seed, [1.0, 0.0], 0.9) for seed in range(60)]
    seen = [released(script, 40, 64, 32) for script in scripts]
    assert [canvas for canvas, _ in seen] == [
        naive_released(script, 40, 64, 32) for script in scripts
    ]
    assert any(went_on for _, went_on in seen), "the case that this is about must occur"
