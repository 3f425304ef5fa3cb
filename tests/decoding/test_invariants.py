"""What holds for every policy and any model, be its predictions ever so senseless.

The policy `released` is left out: it cuts committed tokens, as the code it follows did.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rho_eos.base.outputs import Output
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.policies.rho_eos import RhoEosParams
from tests.scripted import (
    END_OF_TURN,
    EOS,
    FIRST_BYTE,
    MASK,
    Guesses,
    Recorded,
    RecordingEngine,
    Script,
    ScriptedRunner,
    arbitrary,
    encode,
    engine_of,
    run_all,
)

#: Any token of the scripts will do.
WITH_EXPAND = SpecialTokens(MASK, EOS, END_OF_TURN, expand=FIRST_BYTE + 200)

shares = st.one_of(st.sampled_from([0.0, 0.4, 0.6, 0.8, 1.0]), st.floats(0, 1))
scripts = st.builds(
    arbitrary,
    seed=st.integers(0, 2**32),
    eos_shares=st.lists(shares, min_size=1, max_size=6),
    sure=st.sampled_from([0.0, 0.2, 0.9]),
)


@st.composite
def lengths(draw: st.DrawFn) -> dict[str, int]:
    limit = draw(st.integers(1, 128) | st.just(256))
    return {"max_new_tokens": limit, "initial_length": draw(st.integers(1, min(limit, 96)))}


@st.composite
def common(draw: st.DrawFn) -> dict[str, object]:
    return {
        **draw(lengths()),
        "block_length": draw(st.sampled_from([None, 1, 5, 32])),
        "early_stop": draw(st.booleans()),
        "defer_eos": draw(st.booleans()),
        "min_new_tokens": draw(st.sampled_from([0, 0, 1])),
        **draw(rules()),
    }


@st.composite
def rules(draw: st.DrawFn) -> dict[str, object]:
    """A commit rule with parameters of its own."""
    half = st.sampled_from([0.5, 0.9, 1.0])
    own: dict[str, dict[str, st.SearchStrategy[Any]]] = {
        "threshold": {"threshold": half, "tie": st.sampled_from([0.0, 0.05, 1.0])},
        "quota": {"steps_per_block": st.none() | st.integers(1, 40), "threshold": half},
        "factor": {"factor": st.sampled_from([0.3, 1.0, 4.0])},
        "entropy-bound": {"gamma": st.sampled_from([0.0, 0.1, 3.0])},
        "klass": {"threshold": half, "stability": st.sampled_from([0.01, 10.0])},
        "wino": {"draft": half, "verify": st.sampled_from([0.0, 0.6, 1.0])},
    }
    rule = draw(st.sampled_from(sorted(own)))
    return {"commit": rule, **{name: draw(values) for name, values in own[rule].items()}}


@st.composite
def region(draw: st.DrawFn) -> dict[str, float]:
    low, high = sorted(draw(st.tuples(shares, shares)))
    return {"rho_low": low, "rho_high": high}


@st.composite
def rho_eos(draw: st.DrawFn) -> DecodeParams:
    return DecodeParams(
        policy="rho-eos",
        signal=draw(st.sampled_from(["density", "confidence"])),
        expansion=draw(st.sampled_from(["constant", "linear", "exponential"])),
        expansion_base=draw(st.integers(1, 20)),
        expansion_interval=draw(st.sampled_from([0.05, 0.1, 1.0])),
        expansion_cap=draw(st.integers(1, 8)),
        horizon=draw(st.sampled_from([0, 1, 64, 1000])),
        spare_content=draw(st.booleans()),
        **draw(region()),
        **draw(common()),
    )


@st.composite
def daedal(draw: st.DrawFn) -> DecodeParams:
    signal = draw(st.sampled_from(["density", "confidence"]))
    return DecodeParams(policy="daedal", signal=signal, **draw(region()), **draw(common()))


@st.composite
def fixed(draw: st.DrawFn) -> DecodeParams:
    return DecodeParams(policy="fixed", **draw(common()))


@st.composite
def ours(draw: st.DrawFn) -> DecodeParams:
    """The policies that are not from a paper, and dLLM-Var's rule."""
    policy = draw(st.sampled_from(["blocks", "scout"]))
    more = {}
    if policy == "scout":
        more = {name: draw(st.integers(0, 128)) for name in ("ahead", "margin")}
        more["look"] = draw(st.integers(1, 128))
        more["trust"] = draw(st.sampled_from([0.0, 0.5, 1.0]))
    return DecodeParams(policy=policy, **draw(common()), **more)


policies = st.one_of(rho_eos(), daedal(), fixed(), ours())


def decode(script: Script, params: DecodeParams) -> tuple[Output, list[Recorded]]:
    """The output, and every step with the canvas before and after it."""
    engine = engine_of(script)
    engine.add("only", encode("?"), params.replaced(trace=True))
    return run_all(engine)["only"], engine.steps["only"]


@st.composite
def infilling(draw: st.DrawFn) -> tuple[DecodeParams, list[int], list[int]]:
    """A policy for gaps, a canvas with given text between some, and the gap of each position."""
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=3))
    limit = draw(st.integers(sum(sizes), 40))
    lengths = {"initial_length": sum(sizes), "max_new_tokens": limit}
    lengths["min_new_tokens"] = draw(st.one_of(st.just(0), st.integers(1, sum(sizes))))
    policy = draw(st.sampled_from(["fixed", "cal", "dreamon"]))
    own: dict[str, object] = {}
    if policy == "dreamon":
        own = {
            "order": draw(st.sampled_from(["entropy", "confidence", "margin"])),
            "steps": draw(st.sampled_from([3, 128])),
        }
    elif policy == "cal":
        own = {
            "evidence": draw(st.sampled_from(["confidence", "suffix"])),
            "patience": draw(st.integers(1, 9)),
            "stride": draw(st.integers(1, 4)),
        }
    canvas: list[int] = []
    gaps: list[int] = []
    for gap, size in enumerate(sizes):
        between = encode("-" * draw(st.integers(1, 3))) if gap else []
        canvas += [*between, *[MASK] * size]
        gaps += [*[-1] * len(between), *[gap] * size]
    return DecodeParams(policy=policy, **lengths, **own), canvas, gaps


@settings(max_examples=120, deadline=None)
@given(scripts, infilling(), st.booleans(), st.booleans())
def test_given_text_stays_gaps_are_filled_and_it_ends(
    script: Script,
    how: tuple[DecodeParams, list[int], list[int]],
    followed: bool,
    after_an_end: bool,
) -> None:
    params, canvas, gaps = how
    dash = encode("-")[0]

    def without_dashes(prompt: list[int], canvas: list[int], step: int) -> Guesses:
        guesses = script(prompt, canvas, step)
        token = np.where(guesses.token == dash, dash + 1, guesses.token)
        token = np.where(np.arange(len(token)) % 7 == step % 7, WITH_EXPAND.expand, token)
        return Guesses(token, guesses.confidence, guesses.eos)

    runner = ScriptedRunner(without_dashes)
    engine = RecordingEngine(runner, WITH_EXPAND)
    suffix = encode("end") if followed else []
    prompt = [*encode("?"), *([EOS] if after_an_end else [])]
    engine.add("only", prompt, params, canvas=canvas, gaps=gaps, suffix=suffix)
    output = run_all(engine)["only"]
    last = engine.steps["only"][-1].after
    given = [token for token, gap in zip(canvas, gaps, strict=True) if gap < 0]
    # The script knows no dash, so those on the canvas are the given ones, in their order.
    assert [token for token in last if token == dash] == given
    assert output.usage.n_token == len(last) - len(given) <= params.max_new_tokens
    assert MASK not in output.token_ids and MASK not in output.canvas_token_ids
    assert output.usage.nfe <= 4 * 3 * params.max_new_tokens + 64
    steps = engine.steps["only"]
    for (_, record, after), following in pairwise(steps):
        for position, token, _ in record.committed:
            if record.moved is None:
                assert after[position] == token
        assert len(following.before) == len(after)
    if output.finish_reason == "stop":
        assert len(output.token_ids) >= params.min_new_tokens
    if followed and output.finish_reason == "stop":
        assert len(output.token_ids) == output.usage.n_token
        if params.policy != "dreamon":
            assert MASK not in last


def guesses_at(script: Script, step: Recorded) -> list[tuple[int, int]]:
    """(position, implicit token) at every MASK, from the script itself."""
    guesses = script(encode("?"), step.before.tolist(), step.record.step)
    return [(at, int(guesses.token[at])) for at in np.flatnonzero(step.before == MASK)]


@settings(max_examples=80, deadline=None)
@given(scripts, policies.filter(lambda params: params.commit != "wino" or "eos" in params.policy))
def test_a_committed_token_never_changes_and_only_masks_are_dropped(
    script: Script, params: DecodeParams
) -> None:
    _, steps = decode(script, params)
    block = params.block_length or params.max_new_tokens
    for before, record, after in steps:
        expected = before.copy()
        for position, token, _ in record.committed:
            assert expected[position] == MASK
            expected[position] = token
        open_ = int(np.flatnonzero(before == MASK)[0]) // block
        for position, token in record.written if params.commit == "wino" else ():
            if record.action == "hold" and token is None:  # taken back, in the open block
                assert position // block == open_
                expected[position] = MASK
        if record.action == "insert":  # DAEDAL replaced a MASK by several, and cut at L_max
            at = next(i for i, t in enumerate(after) if i >= len(expected) or t != expected[i])
            extra = params.expansion_base - 1
            expected = np.insert(expected, at, [MASK] * extra)[: params.max_new_tokens]
        kept = min(len(expected), len(after))
        assert after[:kept].tolist() == expected[:kept].tolist()
        assert all(expected[kept:] == MASK), "something other than a MASK was dropped"
        assert set(after[kept:]) <= {MASK, EOS}, "only MASKs, or DAEDAL's closing EOS, are added"


@settings(max_examples=80, deadline=None)
@given(scripts, rho_eos())
def test_no_mask_that_would_become_text_is_dropped_where_content_is_spared(
    script: Script, params: DecodeParams
) -> None:
    _, steps = decode(script, params.replaced(spare_content=True))
    for step in steps:
        text = [at for at, token in guesses_at(script, step) if token != EOS]
        assert max(text, default=0) < len(step.after)


@settings(max_examples=80, deadline=None)
@given(scripts, policies)
def test_length_stays_within_its_limits_and_it_ends_in_time(
    script: Script, params: DecodeParams
) -> None:
    output, steps = decode(script, params)
    canvases = [step.after for step in steps]
    assert all(1 <= len(canvas) <= params.max_new_tokens for canvas in canvases)
    assert all(len(step.before) >= 1 for step in steps)
    horizon = params.horizon if params.policy == "rho-eos" else 64
    assert output.usage.nfe <= params.max_new_tokens + max(horizon, 64)
    if params.policy == "fixed":
        assert all(len(canvas) == params.initial_length for canvas in canvases)
    if params.policy == "daedal":
        assert all(b >= a for a, b in zip(map(len, canvases), map(len, canvases[1:]), strict=False))


@settings(max_examples=80, deadline=None)
@given(scripts, policies)
def test_no_mask_is_ever_returned(script: Script, params: DecodeParams) -> None:
    output, steps = decode(script, params)
    last = steps[-1].after
    assert MASK not in output.token_ids
    assert MASK not in output.canvas_token_ids
    assert len(output.canvas_token_ids) == len(last)
    if not params.early_stop:
        assert output.canvas_token_ids == last.tolist()


@settings(max_examples=80, deadline=None)
@given(scripts, policies)
def test_density_is_the_share_of_eos_among_masks(script: Script, params: DecodeParams) -> None:
    _, steps = decode(script, params)
    for step in steps:
        votes = [token == EOS for _, token in guesses_at(script, step)]
        assert step.record.masks == len(votes) > 0
        assert step.record.rho == sum(votes) / len(votes)
        if params.policy == "rho-eos" and params.signal == "density":
            assert step.record.signal == step.record.rho


@settings(max_examples=80, deadline=None)
@given(scripts, rho_eos())
def test_it_holds_inside_the_region_and_moves_back_towards_it(
    script: Script, params: DecodeParams
) -> None:
    output, steps = decode(script, params)
    for number, (_, record, after) in enumerate(steps, start=1):
        change = len(after) - record.length
        assert record.change == change
        late = record.step >= params.horizon or record.length == params.max_new_tokens
        if late or params.rho_low <= record.signal <= params.rho_high:
            assert (record.action, change) == ("hold", 0)
        elif record.signal < params.rho_low:
            ended = params.early_stop and number == output.usage.nfe
            assert change > 0 or ended
        else:
            assert change <= 0


@settings(max_examples=60, deadline=None)
@given(scripts, rho_eos())
def test_with_the_region_of_everything_it_is_fixed_length(
    script: Script, params: DecodeParams
) -> None:
    own = {"policy", *set(RhoEosParams.model_fields) - set(DecodeParams.model_fields)}
    free, _ = decode(script, params.replaced(rho_low=0, rho_high=1))
    fix, _ = decode(script, DecodeParams(policy="fixed", **params.model_dump(exclude=own)))
    assert free.canvas_token_ids == fix.canvas_token_ids
    assert free.usage.nfe == fix.usage.nfe


@settings(max_examples=60, deadline=None)
@given(scripts, policies)
def test_stopping_early_returns_the_same_tokens(script: Script, params: DecodeParams) -> None:
    early, _ = decode(script, params.replaced(early_stop=True))
    full, _ = decode(script, params.replaced(early_stop=False))
    assert early.token_ids == full.token_ids
    assert early.text == full.text
    assert early.finish_reason == full.finish_reason
    assert early.usage.nfe <= full.usage.nfe
