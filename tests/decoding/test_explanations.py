"""What live views say of a step is true of it, also where the canvas may grow no more."""

import pytest

from rho_eos.decoding.params import DecodeParams
from rho_eos.views.narration import explain, figure
from tests.scripted import encode, engine_of, run_all, says


def told(text: str, **how: object) -> list[str]:
    """Why each step did to the length what it did."""
    params = DecodeParams(trace=True, **how)
    engine = engine_of(says(text, confidence=0.95))
    engine.add("only", encode("?"), params)
    return [explain(params, record) for record in run_all(engine)["only"].trace]


def test_a_full_block_is_not_called_open() -> None:
    limits = {"initial_length": 4, "max_new_tokens": 8, "block_length": 2}
    *most, last = told("a" * 99, policy="blocks", **limits)
    assert [sentence.startswith("The block is full and holds no end") for sentence in most] == [
        *(False, True, False)
    ]
    assert most[0] == "The block is not full yet."
    assert last == "The block is full: the text has ended, or the canvas is as long as it may be."


def released(text: str, **how: object) -> list[str]:
    return told(text, policy="released", max_new_tokens=512, **how)


def test_eos_confidence_is_not_told_in_the_words_of_density() -> None:
    """It is about the last positions of the canvas, not about how many MASKs there are."""
    short, *_ = released("a" * 60, initial_length=16)
    assert short.startswith("EOS confidence = 0.00 < 0.4: it is not sure that the text ends here")
    long, *_ = released("a" * 60, initial_length=256)
    assert long.startswith("EOS confidence = 0.95 > 0.8: the text surely ends here")
    few, *_ = told("a" * 60, policy="rho-eos", initial_length=16)
    assert few.startswith("ρ = 0.00 < 0.4: too few MASKs expect the end")


@pytest.mark.parametrize(
    ("number", "bounds", "text"),
    [
        (0.8999, (0.4, 0.9), "0.8999"),
        (0.896, (0.4, 0.9), "0.896"),
        (0.9, (0.4, 0.9), "0.90"),
        (0.40001, (0.4, 0.9), "0.40001"),
        (0.123456, (), "0.12"),
    ],
)
def test_a_number_is_shown_on_its_side_of_what_it_is_compared_with(
    number: float, bounds: tuple[float, ...], text: str
) -> None:
    assert figure(number, *bounds) == text
