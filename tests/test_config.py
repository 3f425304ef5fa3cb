"""Every bad value is refused with the field, what it got and what it takes."""

import json
import pickle
from typing import Annotated, Any

import pytest
from pydantic import Field, ValidationError

from rho_eos.base.errors import UserError
from rho_eos.base.settings import Settings, Texts, from_word, setting
from rho_eos.config import EngineConfig
from rho_eos.decoding.params import DecodeParams, merged
from rho_eos.decoding.registry import policies
from rho_eos.views.narration import signal_name


@pytest.mark.parametrize(
    ("given", "field", "got", "takes"),
    [
        (
            {"policy": "greedy"},
            "policy",
            "'greedy'",
            "rho-eos, blocks, cal, daedal, dreamon, fixed, released, scout",
        ),
        ({"preset": "best"}, "preset", "'best'", "asym, sym"),
        ({"signal": "entropy"}, "signal", "'entropy'", "density, confidence"),
        ({"expansion": "cubic"}, "expansion", "'cubic'", "constant, linear, exponential"),
        ({"initial_length": 0}, "initial_length", "0", "an integer from 1 to 1048576"),
        ({"initial_length": 2.5}, "initial_length", "2.5", "an integer"),
        ({"initial_length": True}, "initial_length", "True", "an integer"),
        ({"initial_length": "64"}, "initial_length", "'64'", "an integer"),
        ({"initial_length": 300, "max_new_tokens": 200}, "initial_length", "300", "200"),
        ({"max_new_tokens": -1}, "max_new_tokens", "-1", "from 1 to"),
        ({"min_new_tokens": -1}, "min_new_tokens", "-1", "from 0 to"),
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
        ({"policy": "fixed", "steps": 0}, "steps", "0", "from 1 to 1048576 or none"),
        ({"policy": "fixed", "steps": 65}, "steps", "65", "at most the length, 64"),
        ({"block_length": 0}, "block_length", "0", "from 1 to 1048576 or none"),
        ({"rho_low": 0.9, "rho_high": 0.5}, "rho_low", "0.9", "at most rho_high, which is 0.5"),
        ({"rho_low": 0.9}, "rho_low", "0.9", "0.8"),  # against the preset's ρ_high
        ({"rho_low": -0.1}, "rho_low", "-0.1", "[0, 1]"),
        ({"rho_high": 1.1}, "rho_high", "1.1", "[0, 1]"),
        ({"expansion_base": 0}, "expansion_base", "0", "from 1 to"),
        ({"expansion_cap": 0}, "expansion_cap", "0", "from 1 to"),
        ({"expansion_interval": 0}, "expansion_interval", "0", "[0.001, 1]"),
        ({"horizon": -1}, "horizon", "-1", "from 0 to"),
        ({"temperature": -0.5}, "temperature", "-0.5", "[0, 100]"),
        ({"temperature": float("inf")}, "temperature", "inf", "[0, 100]"),
        ({"seed": -1}, "seed", "-1", "from 0 to"),
        ({"cfg_scale": -1}, "cfg_scale", "-1", "[0, 100]"),
        ({"stop": 3}, "stop", "3", "a non-empty text"),
        ({"temperature": 1e308}, "temperature", "1e+308", "[0, 100]"),
        ({"expansion_base": 10**20}, "expansion_base", "1" + "0" * 20, "to 1048576"),
        ({"top_p": 0}, "top_p", "0", "(0, 1]"),
        ({"top_k": 0}, "top_k", "0", "from 1 to 1048576 or none"),
        ({"preset": ["asym"]}, "preset", "['asym']", "asym, sym"),
        ({"early_stop": "no"}, "early_stop", "'no'", "true or false"),
        ({"trace": 1}, "trace", "1", "true or false"),
        ({"defer_eos": "x"}, "defer_eos", "'x'", "true or false"),
    ],
)
def test_decode_params(given: dict[str, Any], field: str, got: str, takes: str) -> None:
    with pytest.raises(UserError) as refused:
        DecodeParams.from_mapping(given)
    error = refused.value
    assert (error.field, repr(error.got)) == (field, got) and takes in str(error.takes)
    assert all(part in str(error) for part in (field, got, takes)) and "\n" not in str(error)
    assert pickle.loads(pickle.dumps(error)).field == field


@pytest.mark.parametrize(
    ("given", "field", "takes"),
    [
        ({"model": ""}, "model", "a non-empty text"),
        ({"dtype": "int8"}, "dtype", "auto, float32, bfloat16, float16"),
        ({"quantization": "int2"}, "quantization", "one of none, int8, int4"),
        ({"max_rows": 0}, "max_rows", "from 1 to"),
        ({"max_positions": 0}, "max_positions", "from 1 to"),
        ({"logits_megabytes": 0.5}, "logits_megabytes", "an integer"),
        ({"mask_token_id": -1}, "mask_token_id", "from 0 to 16777216 or none"),
        ({"eos_token_id": "2"}, "eos_token_id", "an integer"),
    ],
)
def test_engine_config(given: dict[str, Any], field: str, takes: str) -> None:
    with pytest.raises(UserError) as refused:
        EngineConfig.from_mapping(given)
    assert (refused.value.field, refused.value.got) == (field, given[field])
    assert takes in str(refused.value)


@pytest.mark.parametrize(
    ("word", "field"), [("treshold", "threshold"), ("initial_lenght", "initial_length")]
)
def test_a_misspelt_parameter_gets_the_name_that_was_meant(word: str, field: str) -> None:
    with pytest.raises(UserError, match=f"did you mean '{field}'") as refused:
        DecodeParams.from_mapping({word: 1})
    assert refused.value.field == word


class Several(Settings):
    """What a policy of somebody else may declare."""

    sizes: tuple[Annotated[int, Field(ge=1)], ...] = setting((1, 2), "sizes", max_length=3)
    shares: tuple[float, ...] | None = setting(None, "shares")
    names: Texts = setting((), "names")


@pytest.mark.parametrize(
    ("name", "word", "value"),
    [
        ("sizes", "4,5", (4, 5)),
        ("sizes", ["4", "5,6"], (4, 5, 6)),
        ("shares", "0.5", (0.5,)),
        ("shares", "none", None),
        ("names", ["a,b", "c"], ("a,b", "c")),
    ],
)
def test_a_setting_of_several_values(name: str, word: str | list[str], value: Any) -> None:
    read = from_word(name, Several.model_fields[name], word)
    assert getattr(Several(**{name: read}), name) == value
    if value is not None:
        assert getattr(Several(**{name: list(value)}), name) == value  # as JSON has it


@pytest.mark.parametrize("sizes", ["4,x", 0, [1, 2, 3, 4], ["1"], [1.5], {"a": 1}])
def test_several_bad_values_are_refused_in_words(sizes: Any) -> None:
    field = Several.model_fields["sizes"]
    with pytest.raises(UserError) as refused:
        Several(sizes=from_word("sizes", field, sizes) if isinstance(sizes, str) else sizes)
    assert refused.value.field == "sizes"
    assert refused.value.takes == "an integer of at least 1 or a list of at most 3"


@pytest.mark.parametrize("kind", [DecodeParams, EngineConfig])
def test_an_unknown_key_is_named_with_the_known_ones(
    kind: type[DecodeParams] | type[EngineConfig],
) -> None:
    with pytest.raises(UserError, match="unknown parameter 'tau'") as refused:
        kind.from_mapping({"tau": 0.9})
    for name in kind.model_fields:
        assert name in str(refused.value)


@pytest.mark.parametrize(
    ("given", "name", "owners"),
    [
        ({"policy": "fixed", "rho_low": 0.3}, "rho_low", ["rho-eos", "daedal", "released"]),
        ({"policy": "fixed", "horizon": 3}, "horizon", ["rho-eos", "released"]),
        ({"policy": "fixed", "spare_content": True}, "spare_content", ["rho-eos"]),
        ({"policy": "daedal", "preset": "sym"}, "preset", ["rho-eos"]),
        ({"policy": "released", "signal": "density"}, "signal", ["rho-eos", "daedal"]),
        ({"commit": "factor", "threshold": 0.5}, "threshold", ["klass", "quota", "threshold"]),
    ],
)
def test_a_parameter_of_another_policy_is_refused(
    given: dict[str, Any], name: str, owners: list[str]
) -> None:
    with pytest.raises(UserError) as refused:
        DecodeParams.from_mapping(given)
    policy = given.get("policy", "rho-eos")
    assert str(refused.value).startswith(f"policy {policy} has no parameter {name!r}")
    assert all(owner in str(refused.value) for owner in owners)


def test_a_list_with_a_bad_item_is_refused_by_that_item() -> None:
    for bad in ("", 3):
        with pytest.raises(UserError, match=r"stop holds .*, but takes a non-empty text"):
            DecodeParams(stop=["x", bad])


def test_none_means_not_given_except_where_it_is_a_value() -> None:
    assert DecodeParams(rho_low=None, seed=None) == DecodeParams()
    assert DecodeParams(block_length=None).block_length is None


def test_a_short_limit_shortens_the_first_canvas_unless_that_was_given() -> None:
    assert DecodeParams(max_new_tokens=32).initial_length == 32
    with pytest.raises(UserError, match="initial_length is 64, but takes at most max_new_tokens"):
        DecodeParams(max_new_tokens=32, initial_length=64)


def test_defaults_for_many_requests_concern_a_policy_that_has_them() -> None:
    defaults = {"preset": "sym", "threshold": 0.8, "max_new_tokens": 100}
    assert merged(defaults, {"seed": 3}) == {**defaults, "seed": 3}
    other = merged(defaults, {"policy": "fixed"})
    assert other == {"policy": "fixed", "threshold": 0.8, "max_new_tokens": 100}
    with pytest.raises(UserError, match="policy fixed has no parameter 'preset'"):
        DecodeParams.from_mapping(merged(defaults, {"policy": "fixed", "preset": "sym"}))


def test_parameters_travel_between_processes() -> None:
    for policy in policies():
        params = DecodeParams(policy=policy, seed=3)
        assert pickle.loads(pickle.dumps(params)) == params
        assert DecodeParams.from_mapping(json.loads(params.model_dump_json())) == params


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
        ({}, "ρ"),
        ({"policy": "daedal"}, "EOS confidence"),
        ({"policy": "released"}, "EOS confidence"),
        ({"signal": "confidence"}, "EOS confidence"),
        ({"policy": "daedal", "signal": "density"}, "ρ"),
    ],
)
def test_the_signal_follows_the_policy_unless_given(given: dict[str, str], signal: str) -> None:
    assert signal_name(DecodeParams.from_mapping(given)) == signal


def test_a_single_stop_string_is_a_list_of_one() -> None:
    assert DecodeParams(stop="END").stop == ("END",)
    assert DecodeParams.from_mapping({"stop": ["a", "b"]}).stop == ("a", "b")


def test_parameters_cannot_be_changed_after_they_were_checked() -> None:
    params = DecodeParams()
    with pytest.raises(ValidationError):
        params.threshold = 2.0
