"""Every bad value is refused with the field, what it got and what it takes."""

import pickle
from typing import Annotated, Any

import pytest
from pydantic import Field, ValidationError

from rho_eos.base.errors import UserError
from rho_eos.base.settings import Settings, from_word, setting
from rho_eos.config import EngineConfig
from rho_eos.decoding.params import DecodeParams, merged
from rho_eos.decoding.schema import choices_of


@pytest.mark.parametrize(
    ("given", "field", "got", "takes"),
    [
        ({"policy": "greedy"}, "policy", "'greedy'", ", ".join(choices_of("policy"))),
        ({"initial_length": 2.5}, "initial_length", "2.5", "an integer from 1 to 1048576"),
        ({"initial_length": 300, "max_new_tokens": 200}, "initial_length", "300", "200"),
        ({"min_new_tokens": 9, "max_new_tokens": 8}, "min_new_tokens", "9", "8"),
        (
            {"policy": "fixed", "initial_length": 8, "min_new_tokens": 9},
            "min_new_tokens",
            "9",
            "at most the length, 8",
        ),
        ({"policy": "fixed", "steps": 65}, "steps", "65", "at most the length, 64"),
        ({"rho_low": 0.9, "rho_high": 0.5}, "rho_low", "0.9", "at most rho_high, which is 0.5"),
        ({"rho_low": 0.9}, "rho_low", "0.9", "0.8"),  # against the preset's ρ_high
        ({"stop": 3}, "stop", "3", "a non-empty text"),
        ({"stop": ["x", 3]}, "stop", "3", "a non-empty text"),
    ],
)
def test_decode_params(given: dict[str, Any], field: str, got: str, takes: str) -> None:
    with pytest.raises(UserError) as refused:
        DecodeParams.from_mapping(given)
    error = refused.value
    assert (error.field, repr(error.got)) == (field, got) and takes in str(error.takes)
    assert all(part in str(error) for part in (field, got, takes)) and "\n" not in str(error)
    assert pickle.loads(pickle.dumps(error)).field == field


def test_a_misspelt_parameter_gets_the_name_that_was_meant() -> None:
    with pytest.raises(UserError, match="did you mean 'threshold'") as refused:
        DecodeParams.from_mapping({"treshold": 1})
    assert refused.value.field == "treshold"


class Several(Settings):
    """What a policy of somebody else may declare."""

    sizes: tuple[Annotated[int, Field(ge=1)], ...] = setting((1, 2), "sizes", max_length=3)


def test_a_setting_of_several_values() -> None:
    for words in ("4,5", ["4", "5"]):  # as a command line has them
        assert from_word("sizes", Several.model_fields["sizes"], words) == (4, 5)
    assert Several(sizes=[4, 5]).sizes == (4, 5)  # as JSON has them


def test_an_unknown_key_is_named_with_the_known_ones() -> None:
    for kind in (DecodeParams, EngineConfig):
        with pytest.raises(UserError, match="unknown parameter 'tau'") as refused:
            kind.from_mapping({"tau": 0.9})
        assert all(name in str(refused.value) for name in kind.model_fields)


@pytest.mark.parametrize(
    ("given", "refused", "owners"),
    [
        ({"policy": "fixed", "rho_low": 0.3}, "no parameter 'rho_low'", "daedal"),
        (
            {"commit": "factor", "threshold": 0.5},
            "has no parameter 'threshold'",
            "klass, commit quota",
        ),
    ],
)
def test_a_parameter_of_another_policy_is_refused(
    given: dict[str, Any], refused: str, owners: str
) -> None:
    with pytest.raises(UserError, match=f"{refused}.*{owners}"):
        DecodeParams.from_mapping(given)


def test_none_means_not_given_except_where_it_is_a_value() -> None:
    assert DecodeParams(rho_low=None, seed=None) == DecodeParams()
    assert DecodeParams(block_length=None).block_length is None


def test_defaults_for_many_requests_concern_a_policy_that_has_them() -> None:
    defaults = {"preset": "sym", "threshold": 0.8, "max_new_tokens": 100}
    assert merged(defaults, {"seed": 3}) == {**defaults, "seed": 3}
    assert merged(defaults, {"max_new_tokens": None, "threshold": 0.7})["max_new_tokens"] == 100
    assert merged({"top_k": 3}, {"top_k": None, "policy": None}) == {"top_k": None}
    other = merged(defaults, {"policy": "fixed"})
    assert other == {"policy": "fixed", "threshold": 0.8, "max_new_tokens": 100}
    with pytest.raises(UserError, match="policy fixed has no parameter 'preset'"):
        DecodeParams.from_mapping(merged(defaults, {"policy": "fixed", "preset": "sym"}))


def test_a_parameter_that_stands_for_a_rule_beats_the_rule_of_the_defaults() -> None:
    """As a number of steps does for a model that is usually decoded by another rule."""
    for defaults in ({"commit": "editing", "threshold": 0.7}, {"commit": "klass"}):
        chosen = DecodeParams.from_mapping(merged(defaults, {"steps_per_block": 4}))
        assert chosen.commit == "quota"
        assert chosen.threshold == defaults.get("threshold", 1.0)  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="no parameter 'steps'"):  # a rule that was named stays
        DecodeParams.from_mapping(merged({}, {"commit": "klass", "steps": 4}))
    with pytest.raises(UserError, match="unknown parameter 'stepz'"):
        DecodeParams.from_mapping(merged({"commit": "klass"}, {"stepz": 4}))


def test_defaults_are_the_published_ones() -> None:
    params = DecodeParams()
    assert params.region == (0.4, 0.8)
    assert (params.threshold, params.horizon, params.block_length) == (0.9, 64, 32)
    assert (params.initial_length, params.max_new_tokens) == (64, 2048)
    assert (params.expansion, params.expansion_base, params.expansion_cap) == ("exponential", 8, 8)
    assert DecodeParams(preset="sym").region == (0.2, 0.8)
    assert DecodeParams(rho_low=0.3, rho_high=0.7).region == (0.3, 0.7)
    assert DecodeParams(policy="daedal").region == (0.5, 0.9)


def test_parameters_cannot_be_changed_after_they_were_checked() -> None:
    params = DecodeParams()
    with pytest.raises(ValidationError):
        params.threshold = 2.0


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"gama": 1}, "gamma"),  # of a rule that was not chosen
        ({"cache_windw": 8}, "cache_window"),
        ({"policy": "fixd"}, "fixed"),
        ({"commit": "treshold"}, "threshold"),
        ({"cache": "windows"}, "window"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(given: dict[str, Any], meant: str) -> None:
    with pytest.raises(UserError, match=f"did you mean '{meant}'"):
        DecodeParams(**given)
