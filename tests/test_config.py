"""Every bad value is refused with the field, what it got and what it takes."""

import dataclasses
from typing import Any

import pytest

from rho_eos.config import EngineConfig
from rho_eos.decoding.params import DecodeParams
from rho_eos.errors import UserError


@pytest.mark.parametrize(
    ("given", "field", "got", "takes"),
    [
        ({"policy": "greedy"}, "policy", "'greedy'", "rho-eos, fixed, daedal"),
        ({"preset": "best"}, "preset", "'best'", "asym, sym, released"),
        ({"signal": "entropy"}, "signal", "'entropy'", "density, confidence"),
        ({"expansion": "cubic"}, "expansion", "'cubic'", "constant, linear, exponential"),
        ({"initial_length": 0}, "initial_length", "0", "an integer of at least 1"),
        ({"initial_length": 2.5}, "initial_length", "2.5", "an integer"),
        ({"initial_length": True}, "initial_length", "True", "an integer"),
        ({"initial_length": "64"}, "initial_length", "'64'", "an integer"),
        ({"initial_length": 300, "max_new_tokens": 200}, "initial_length", "300", "200"),
        ({"max_new_tokens": -1}, "max_new_tokens", "-1", "at least 1"),
        ({"min_new_tokens": -1}, "min_new_tokens", "-1", "at least 0"),
        (
            {"min_new_tokens": 9, "max_new_tokens": 8, "initial_length": 8},
            "min_new_tokens",
            "9",
            "8",
        ),
        (
            {"policy": "fixed", "initial_length": 8, "min_new_tokens": 9},
            "min_new_tokens",
            "9",
            "at most the length, 8",
        ),
        ({"threshold": 0}, "threshold", "0", "(0, 1]"),
        ({"threshold": 1.01}, "threshold", "1.01", "(0, 1]"),
        ({"threshold": float("nan")}, "threshold", "nan", "(0, 1]"),
        ({"threshold": "high"}, "threshold", "'high'", "(0, 1]"),
        ({"steps": 8}, "steps", "8", "only with policy fixed"),
        ({"policy": "fixed", "steps": 0}, "steps", "0", "at least 1 or none"),
        ({"policy": "fixed", "steps": 65}, "steps", "65", "at most the length, 64"),
        ({"block_length": 0}, "block_length", "0", "at least 1 or none"),
        ({"rho_low": 0.9, "rho_high": 0.5}, "rho_low", "0.9", "at most rho_high, which is 0.5"),
        ({"rho_low": 0.9}, "rho_low", "0.9", "0.8"),  # against the preset's ρ_high
        ({"rho_low": -0.1}, "rho_low", "-0.1", "[0, 1]"),
        ({"rho_high": 1.1}, "rho_high", "1.1", "[0, 1]"),
        ({"expansion_base": 0}, "expansion_base", "0", "at least 1"),
        ({"expansion_cap": 0}, "expansion_cap", "0", "at least 1"),
        ({"expansion_interval": 0}, "expansion_interval", "0", "(0, 1]"),
        ({"horizon": -1}, "horizon", "-1", "at least 0"),
        ({"temperature": -0.5}, "temperature", "-0.5", "at least 0"),
        ({"temperature": float("inf")}, "temperature", "inf", "at least 0"),
        ({"seed": -1}, "seed", "-1", "at least 0"),
        ({"cfg_scale": -1}, "cfg_scale", "-1", "at least 0"),
        ({"stop": ["", "x"]}, "stop", "('', 'x')", "a non-empty string"),
        ({"stop": 3}, "stop", "3", "a non-empty string"),
        ({"preset": ["asym"]}, "preset", "['asym']", "asym, sym, released"),
        ({"stop": [3]}, "stop", "(3,)", "a non-empty string"),
        ({"early_stop": "no"}, "early_stop", "'no'", "true or false"),
        ({"trace": 1}, "trace", "1", "true or false"),
        ({"defer_eos": None}, "defer_eos", "None", "true or false"),
        ({"preset": "released", "signal": "density"}, "signal", "'density'", "confidence"),
        ({"preset": "released", "spare_content": True}, "spare_content", "True", "false with"),
    ],
)
def test_decode_params(given: dict[str, Any], field: str, got: str, takes: str) -> None:
    with pytest.raises(UserError) as refused:
        DecodeParams.from_mapping(given)
    message = str(refused.value)
    assert message.startswith(f"{field} is {got}, but takes ")
    assert takes in message.partition("but takes")[2]
    assert "\n" not in message


@pytest.mark.parametrize(
    ("given", "field", "takes"),
    [
        ({"model": ""}, "model", "a folder or Hub id"),
        ({"dtype": "int8"}, "dtype", "auto, float32, bfloat16, float16"),
        ({"max_rows": 0}, "max_rows", "at least 1"),
        ({"max_positions": 0}, "max_positions", "at least 1"),
        ({"logits_megabytes": 0.5}, "logits_megabytes", "an integer"),
        ({"mask_token_id": -1}, "mask_token_id", "at least 0 or none"),
        ({"eos_token_id": "2"}, "eos_token_id", "an integer"),
    ],
)
def test_engine_config(given: dict[str, Any], field: str, takes: str) -> None:
    with pytest.raises(UserError) as refused:
        EngineConfig.from_mapping(given)
    message = str(refused.value)
    assert message.startswith(f"{field} is {given[field]!r}, but takes ")
    assert takes in message


@pytest.mark.parametrize("kind", [DecodeParams, EngineConfig])
def test_an_unknown_key_is_named_with_the_known_ones(
    kind: type[DecodeParams] | type[EngineConfig],
) -> None:
    with pytest.raises(UserError, match="unknown parameter 'tau'") as refused:
        kind.from_mapping({"tau": 0.9})
    for field in dataclasses.fields(kind):
        assert field.name in str(refused.value)


def test_defaults_are_the_published_ones() -> None:
    params = DecodeParams()
    assert params.region == (0.4, 0.8)
    assert (params.threshold, params.horizon, params.block_length) == (0.9, 64, 32)
    assert (params.initial_length, params.max_new_tokens) == (64, 2048)
    assert (params.expansion, params.expansion_base, params.expansion_cap) == ("exponential", 8, 8)
    assert DecodeParams(preset="sym").region == (0.2, 0.8)
    assert DecodeParams(rho_low=0.3, rho_high=0.7).region == (0.3, 0.7)
    assert DecodeParams(policy="daedal").region == (0.5, 0.9)


@pytest.mark.parametrize(
    ("given", "signal"),
    [
        ({}, "density"),
        ({"policy": "daedal"}, "confidence"),
        ({"preset": "released"}, "confidence"),
        ({"signal": "confidence"}, "confidence"),
        ({"policy": "daedal", "signal": "density"}, "density"),
    ],
)
def test_the_signal_follows_the_policy_unless_given(given: dict[str, str], signal: str) -> None:
    assert DecodeParams.from_mapping(given).resolved_signal == signal


def test_a_single_stop_string_is_a_list_of_one() -> None:
    assert DecodeParams(stop="END").stop == ("END",)
    assert DecodeParams.from_mapping({"stop": ["a", "b"]}).stop == ("a", "b")


def test_parameters_cannot_be_changed_after_they_were_checked() -> None:
    params = DecodeParams()
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.threshold = 2.0  # type: ignore[misc]
