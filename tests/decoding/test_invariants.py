"""What holds for every policy and any model, be its predictions ever so senseless.

The policy `released` is left out: it cuts committed tokens, as the code it follows did. That all
policies do what they are meant to do is in tests/engine/test_against_reference.py.
"""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rho_eos.base.outputs import Output
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.policies.rho_eos import RhoEosParams
from rho_eos.decoding.policy import Infills
from tests.attack import times
from tests.drawn import SETTLED, any_parameters, policies_for
from tests.scripted import (
    END_OF_TURN,
    EOS,
    FIRST_BYTE,
    MASK,
    SPECIAL,
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
from tests.scripted import decode as detokenize

#: Any token of the scripts will do.
WITH_EXPAND = SpecialTokens(MASK, EOS, END_OF_TURN, expand=FIRST_BYTE + 200)

shares = st.one_of(st.sampled_from([0.0, 0.4, 0.6, 0.8, 1.0]), st.floats(0, 1))
scripts = st.builds(
    arbitrary,
    seed=st.integers(0, 2**32),
    eos_shares=st.lists(shares, min_size=1, max_size=6),
    sure=st.sampled_from([0.0, 0.2, 0.9]),
)
WRITING = [name for name in policies_for(SPECIAL) if name not in ("cal", "released")]
any_way = any_parameters(WRITING, SETTLED, ["none"], without=["stop", "logprobs"], longest=64)


def decode(script: Script, params: DecodeParams) -> tuple[Output, list[Recorded]]:
    """The output, and every step with the canvas before and after it."""
    engine = engine_of(script)
    engine.add("only", encode("?"), params.replaced(trace=True))
    return run_all(engine)["only"], engine.steps["only"]


def guesses_at(script: Script, step: Recorded) -> list[tuple[int, int]]:
    """(position, implicit token) at every MASK, from the script itself."""
    guesses = script(encode("?"), step.before.tolist(), step.record.step)
    return [(at, int(guesses.token[at])) for at in np.flatnonzero(step.before == MASK)]


@st.composite
def templates(draw: st.DrawFn) -> tuple[DecodeParams, list[int], list[int]]:
    """A policy for gaps, a canvas with given text between some, and the gap of each position."""
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=3))
    limit = draw(st.integers(sum(sizes), 40))
    lengths: dict[str, int | None] = {"initial_length": sum(sizes), "max_new_tokens": limit}
    lengths["min_new_tokens"] = draw(st.just(0) | st.integers(1, sum(sizes)))
    params = draw(
        any_parameters(
            policies_for(WITH_EXPAND, Infills),
            SETTLED,
            ["none"],
            without=[*lengths, "early_stop", "context", "stop", "logprobs"],
        )
    )
    if params.commit == "quota":
        lengths["steps"] = None  # they may be more than there are MASKs
    canvas: list[int] = []
    gaps: list[int] = []
    for gap, size in enumerate(sizes):
        between = encode("-" * draw(st.integers(1, 3))) if gap else []
        canvas += [*between, *[MASK] * size]
        gaps += [*[-1] * len(between), *[gap] * size]
    return params.replaced(**lengths), canvas, gaps


@settings(max_examples=times(120, 2000))
@given(scripts, templates(), st.booleans(), st.booleans())
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
        # ASCII only: a character of several bytes that lies across two gaps is in no gap's text.
        ascii_only = FIRST_BYTE + (guesses.token - FIRST_BYTE) % 128
        token = np.where(guesses.token < FIRST_BYTE, guesses.token, ascii_only)
        token = np.where(token == dash, dash + 1, token)
        token = np.where(np.arange(len(token)) % 7 == step % 7, WITH_EXPAND.expand, token)
        return Guesses(token, guesses.confidence, guesses.eos)

    runner = ScriptedRunner(without_dashes)
    engine = RecordingEngine(runner, WITH_EXPAND)
    suffix = encode("end") if followed else []
    prompt = [*encode("?"), *([EOS] if after_an_end else [])]
    texts = ("<", *"|" * max(gaps), ">" if followed else "")
    engine.add("only", prompt, params, canvas=canvas, gaps=gaps, suffix=suffix, texts=texts)
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
    assert output.usage.prompt_tokens == len(prompt) + len(given) + len(suffix)
    assert "".join(output.gaps) == detokenize(output.token_ids)
    if output.finish_reason == "stop":
        assert output.text == "<" + "|".join(output.gaps) + texts[-1]
    if followed and output.finish_reason == "stop":
        assert len(output.token_ids) == output.usage.n_token
        if params.policy != "dreamon":
            assert MASK not in last


@settings(max_examples=times(100, 2000))
@given(scripts, any_way)
def test_what_holds_for_every_policy(script: Script, params: DecodeParams) -> None:
    output, steps = decode(script, params)
    for step in steps:
        check_committed(step, params)
        check_density(script, step, params)
        assert len(step.before) >= 1 and 1 <= len(step.after) <= params.max_new_tokens
        assert step.record.change == len(step.after) - step.record.length
    last = steps[-1].after
    assert MASK not in output.token_ids and MASK not in output.canvas_token_ids
    assert len(output.canvas_token_ids) == len(last)
    if not params.early_stop:
        assert output.canvas_token_ids == last.tolist()
    horizon = params.horizon if params.policy == "rho-eos" else 64
    assert output.usage.nfe <= params.max_new_tokens + max(horizon, 64)


def check_committed(step: Recorded, params: DecodeParams) -> None:
    """A committed token never changes, and only MASKs are dropped."""
    (before, record, after), expected = step, step.before.copy()
    for position, token, _ in record.committed:
        assert expected[position] == MASK
        expected[position] = token
    if params.commit == "wino" and record.action == "hold":
        block = params.block_length or params.max_new_tokens
        for position, token in record.written:  # taken back, in the open block
            assert token is None
            assert position // block == int(np.flatnonzero(before == MASK)[0]) // block
            expected[position] = MASK
    if record.action == "insert":  # DAEDAL replaced a MASK by several, and cut at L_max
        at = next(i for i, t in enumerate(after) if i >= len(expected) or t != expected[i])
        extra = min(params.expansion_base - 1, params.max_new_tokens)
        expected = np.insert(expected, at, [MASK] * extra)[: params.max_new_tokens]
    if params.commit == "wino" and record.action != "hold":
        return  # what is taken back cannot be told from the edit
    kept = min(len(expected), len(after))
    assert after[:kept].tolist() == expected[:kept].tolist()
    assert all(expected[kept:] == MASK), "something other than a MASK was dropped"
    assert set(after[kept:]) <= {MASK, EOS}, "only MASKs, or DAEDAL's closing EOS, are added"


def check_density(script: Script, step: Recorded, params: DecodeParams) -> None:
    """ρ is the share of EOS among the MASKs, and holds the length where it is in its region."""
    record, votes = step.record, [token == EOS for _, token in guesses_at(script, step)]
    assert record.masks == len(votes) > 0
    if params.min_new_tokens == 0:
        assert record.rho == sum(votes) / len(votes)
    if params.policy == "rho-eos" and params.rho_low <= record.signal <= params.rho_high:
        assert (record.action, record.change) == ("hold", 0)


@settings(max_examples=times(60, 2000))
@given(scripts, any_parameters(["rho-eos"], SETTLED, ["none"], without=["stop", "min_new_tokens"]))
def test_no_mask_that_would_become_text_is_dropped_where_content_is_spared(
    script: Script, params: DecodeParams
) -> None:
    _, steps = decode(script, params.replaced(spare_content=True))
    for step in steps:
        text = [at for at, token in guesses_at(script, step) if token != EOS]
        assert max(text, default=0) < len(step.after)


@settings(max_examples=times(60, 2000))
@given(scripts, any_parameters(["rho-eos"], SETTLED, ["none"], without=["min_new_tokens", "steps"]))
def test_with_the_region_of_everything_it_is_fixed_length(
    script: Script, params: DecodeParams
) -> None:
    own = {"policy", *set(RhoEosParams.model_fields) - set(DecodeParams.model_fields)}
    free, _ = decode(script, params.replaced(rho_low=0, rho_high=1))
    given = params.model_dump(exclude=own)
    fix, _ = decode(script, DecodeParams(policy="fixed", **given))
    assert free.canvas_token_ids == fix.canvas_token_ids
    assert free.usage.nfe == fix.usage.nfe


@settings(max_examples=times(60, 2000))
@given(scripts, any_way)
def test_stopping_early_returns_the_same_tokens(script: Script, params: DecodeParams) -> None:
    early, _ = decode(script, params.replaced(early_stop=True))
    full, _ = decode(script, params.replaced(early_stop=False))
    assert early.token_ids == full.token_ids
    assert early.text == full.text
    assert early.finish_reason == full.finish_reason
    assert early.usage.nfe <= full.usage.nfe
