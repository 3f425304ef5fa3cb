"""What live views say of a step is true of it, also where the canvas may grow no more."""

from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.registry import find_policy
from tests.scripted import encode, engine_of, run_all, says


def told(text: str, **how: object) -> list[str]:
    """Why each step did to the length what it did."""
    params = DecodeParams(trace=True, **how)
    engine = engine_of(says(text, confidence=0.95))
    engine.add("only", encode("?"), params)
    policy = find_policy(params.policy)
    return [policy.explain(params, record) for record in run_all(engine)["only"].trace]


def test_at_its_limit_landing_does_not_claim_to_see_an_end() -> None:
    limits = {"initial_length": 16, "max_new_tokens": 16}
    assert told("a" * 99, policy="landing", **limits) == ["The canvas is as long as it may be."]


def test_a_full_block_is_not_called_open() -> None:
    limits = {"initial_length": 4, "max_new_tokens": 8, "block_length": 2}
    *most, last = told("a" * 99, policy="blocks", **limits)
    assert [sentence.startswith("The block is full and holds no end") for sentence in most] == [
        *(False, True, False)
    ]
    assert most[0] == "The block is not full yet."
    assert last == "The block is full: the text has ended, or the canvas is as long as it may be."
