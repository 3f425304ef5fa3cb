"""lm-eval's names for things, in ours: `model_args` and `gen_kwargs` to checked settings."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch

from rho_eos.base.errors import UserError
from rho_eos.base.plugins import load_plugins
from rho_eos.base.settings import Settings, setting
from rho_eos.config import EngineConfig
from rho_eos.decoding.params import DecodeParams, merged
from rho_eos.decoding.schema import parameters

logger = logging.getLogger(__name__)

#: All names that lm-eval's backends know for the longest answer; ours comes first.
MOST_TOKENS = ("max_new_tokens", "max_gen_toks", "max_tokens", "max_completion_tokens")
#: What only sampling reads; a greedy request may carry them.
SAMPLING_ONLY = ("top_p", "top_k", "min_p")


class LikelihoodParams(Settings):
    """How answers are scored where a task asks for their likelihood."""

    mc_num: int = setting(
        128, "masks drawn for a likelihood; LLaDA's evaluation uses 128", ge=1, le=1_000_000
    )
    check_greedy: bool = setting(True, "also find out whether greedy decoding gives the answer")


class ModelArgs(NamedTuple):
    engine: dict[str, Any]
    decode: dict[str, Any]  # defaults of every request
    params: DecodeParams  # the same, checked
    likelihood: LikelihoodParams


def read_model_args(given: Mapping[str, Any]) -> ModelArgs:
    """Sort `model_args` by what they configure; an unknown one is an error that names them all."""
    given = dict(given)
    given["model"] = given.pop("pretrained", given.get("model", "tiny"))
    if "peft" in given:  # what lm-eval's own models call an adapter
        given.setdefault("adapter", given.pop("peft"))

    def among(names: Iterable[str]) -> dict[str, Any]:
        return {name: given[name] for name in names if name in given}

    engine_names = EngineConfig.model_fields.keys() - {"defaults"}  # those stand beside them here
    engine = among(engine_names)
    load_plugins(EngineConfig.from_mapping(engine).plugin)  # they bring policies, and parameters
    known = {*engine_names, *parameters(), *LikelihoodParams.model_fields}
    for name in given.keys() - known:
        names = ", ".join(sorted(known - {"model"}))
        raise UserError(f"unknown model argument {name!r}; known are pretrained, {names}")
    decode = among(parameters())
    likelihood = LikelihoodParams.from_mapping(among(LikelihoodParams.model_fields))
    return ModelArgs(engine, decode, DecodeParams.from_mapping(decode), likelihood)


def engine_limits(batch_size: Any, device: str | None) -> dict[str, Any]:
    """What lm-eval passes to every model, as far as somebody may have meant it.

    Its defaults are a batch of 1 and `cuda:0`, also without CUDA. Here the batch changes the time
    only, never an answer, so 1 and `auto` leave it to the engine (`max_rows` is the way to insist).
    """
    limits: dict[str, Any] = {}
    text = str(batch_size or "auto")
    if not text.startswith("auto"):
        if not text.isdigit() or text == "0":
            raise UserError(f"batch_size is {batch_size!r}, but takes a number or auto")
        if int(text) > 1:
            limits["max_rows"] = int(text)
    if device:
        absent = device.startswith("cuda") and not torch.cuda.is_available()
        limits["device"] = "auto" if absent else device
        if absent:
            logger.info("there is no CUDA here, so %s is not used", device)
    return limits


def decode_params(
    defaults: Mapping[str, Any], gen_kwargs: Mapping[str, Any], repeat: int = 0
) -> dict[str, Any]:
    """The parameters of one request. What the task and `--gen_kwargs` say beats `defaults`."""
    given = dict(gen_kwargs)
    stops = [given.pop(name, None) or [] for name in ("until", "stop")]
    listed = [[each] if isinstance(each, str) else each for each in stops]
    own: dict[str, Any] = {"stop": [stop for each in listed for stop in each if stop]}
    limits = [given.pop(name) for name in MOST_TOKENS if name in given]
    if limits:
        own["max_new_tokens"] = limits[0]
    do_sample = given.pop("do_sample", None)
    if do_sample is False:
        own["temperature"] = 0.0
        given.pop("temperature", None)
    params = merged(defaults, {**given, **own})
    if do_sample and "temperature" not in params:
        params["temperature"] = 1.0
    if not params.get("temperature"):
        params = {key: value for key, value in params.items() if key not in SAMPLING_ONLY}
    most, first = params.get("max_new_tokens"), params.get("initial_length")
    if "initial_length" not in given and isinstance(most, int) and isinstance(first, int):
        # A task's short limit means a short answer, not that the usual canvas is a mistake.
        params["initial_length"] = min(most, first)
    params["seed"] = params.get("seed", 0) + repeat
    return params
