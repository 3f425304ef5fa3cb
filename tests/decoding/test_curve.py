"""The curve behind ρ, against formulas written out, and the policy that reads it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.canvas import Canvas
from rho_eos.decoding.curve import Curve, least_length, monotone
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.prediction import Prediction
from tests.scripted import EOS, Guesses, Script, encode, engine_of, run_all

M, E = 0, 1
SPECIAL = SpecialTokens(mask=M, eos=E)
shares = st.lists(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.8, 1.0]) | st.floats(0, 1), max_size=24)


@given(shares)
def test_monotone_is_the_formula_of_isotonic_regression(values: list[float]) -> None:
    """The value at i is the largest, over beginnings up to i, of the least mean from there."""
    expected = [
        max(
            min(np.mean(values[first : last + 1]) for last in range(at, len(values)))
            for first in range(at + 1)
        )
        for at in range(len(values))
    ]
    assert monotone(np.array(values)) == pytest.approx(expected)


def curve(cells: list[int], eos: list[float]) -> Curve:
    canvas = Canvas.of(SPECIAL, [], cells)
    count = len(canvas.masked)
    numbers = np.array(eos, dtype=np.float64)
    tokens = np.full(count, 7)
    return Curve.of(canvas, Prediction(canvas.masked, tokens, np.ones(count), numbers))


def test_a_length_is_read_from_the_distribution() -> None:
    """Three answers, of 2, 4 and 6 tokens, are equally likely."""
    of_three = curve([M] * 8, [0, 0, 1 / 3, 1 / 3, 2 / 3, 2 / 3, 1, 1])
    f = of_three.distribution()
    assert [least_length(f, share) for share in (0.3, 0.5, 0.9)] == [2, 4, 6]
    told = of_three.foretold()
    assert told.expected == pytest.approx((2 + 4 + 6) / 3)
    assert told.soft_rho == pytest.approx(4 / 8)
    assert told.quantiles == (2, 2, 4, 6, 6)
    assert told.curve[0] == 0
    assert told.curve[-1] == 1
    assert least_length(curve([M] * 4, [0, 0, 0.3, 0.4]).distribution(), 0.9) is None


def test_the_hazard_reading_counts_early_mass_again_and_again() -> None:
    """(METHOD: hazards multiply.) By it the same curve ends by the third token already."""
    of_three = curve([M] * 8, [0, 0, 1 / 3, 1 / 3, 2 / 3, 2 / 3, 1, 1])
    by_hand = [0, 0, 1 / 3, 5 / 9, 1 - 4 / 9 / 3, 1 - 4 / 27 / 3, 1, 1]
    assert of_three.distribution("hazard") == pytest.approx(by_hand)
    bumpy = curve([M] * 5, [0, 0.9, 0.2, 0.8, 1])
    assert bumpy.distribution("last") == pytest.approx([0, 0.2, 0.2, 0.8, 1])


def test_what_is_written_sharpens_the_curve() -> None:
    """A text goes on behind a token of it, and is over at its end, whatever MASKs say."""
    assert curve([M, 7, M, E, M], [0.9, 0.2, 0.1]).distribution() == pytest.approx(
        [0, 0, 0.2, 1, 1]
    )


def answers_by_chance(lengths: list[int], taken: int) -> Script:
    """Each of some lengths is equally likely until the third token tells which one it is."""

    def script(prompt: list[int], canvas: list[int], step: int) -> Guesses:
        at = np.arange(len(canvas))
        told = len(canvas) > 2 and canvas[2] == encode(str(taken))[0]
        f = np.mean([at >= length for length in ([lengths[taken]] if told else lengths)], axis=0)
        text = encode("ab" + str(taken) + "x" * len(canvas))[: len(canvas)]
        token = np.where(f > 0.5, EOS, text)
        sure = np.where((at < 3) | told, np.maximum(f, 1 - f), 0.5)
        return Guesses(token, sure, f)

    return script


def decode(script: Script, **params: object):  # type: ignore[no-untyped-def]
    engine = engine_of(script)
    engine.add("only", encode("?"), DecodeParams(trace=True, policy="quantile", **params))
    return run_all(engine)["only"]


@pytest.mark.parametrize("taken", [0, 1, 2])
@pytest.mark.parametrize("start", [16, 64, 512])
def test_every_length_that_may_come_gets_its_room(taken: int, start: int) -> None:
    lengths = [20, 50, 90]
    output = decode(answers_by_chance(lengths, taken), initial_length=start)
    assert len(output.token_ids) == lengths[taken]
    first = output.trace[0]
    assert first.length == 256
    assert first.foretold is not None
    assert first.foretold.quantiles == (20, 20, 50, 90, 90)
    second = output.trace[1]  # 90 suffices with probability 1 - risk, and a quarter of it is room
    assert second.length == 90 + 90 // 4


def test_the_risk_decides_how_long_the_canvas_is() -> None:
    script = answers_by_chance([20, 50, 90], taken=0)
    lengths = [decode(script, risk=risk, room=0.0).trace[1].length for risk in (0.9, 0.5, 0.1)]
    assert lengths == [20 + 16, 50 + 16, 90 + 16]


def test_a_length_that_is_not_clear_is_read_on_a_longer_canvas() -> None:
    output = decode(answers_by_chance([200], taken=0))
    assert [record.length for record in output.trace[:2]] == [256, 512]
    assert not output.trace[0].committed
    assert len(output.token_ids) == 200


def test_it_grows_where_the_canvas_is_riskier_than_allowed() -> None:
    output = decode(answers_by_chance([700], taken=0), max_new_tokens=1024)
    assert len(output.token_ids) == 700
    lengths = [record.length for record in output.trace]
    assert lengths[:3] == [256, 512, 768]


def test_records_tell_the_curve_only_where_somebody_listens() -> None:
    engine = engine_of(answers_by_chance([20, 50, 90], taken=1))
    engine.add("only", encode("?"), DecodeParams(policy="quantile"))
    assert not run_all(engine)["only"].trace
    traced = decode(answers_by_chance([20, 50, 90], taken=1))
    assert all(record.foretold is not None for record in traced.trace)
    assert all(len(record.foretold.curve) == 33 for record in traced.trace)
