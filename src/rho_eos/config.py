"""What a process decides once: which model, where it runs, how much runs together."""

from collections.abc import Sequence
from typing import Any, Literal, Self, TypedDict

from pydantic import model_validator

from rho_eos.base.settings import Settings, Texts, setting
from rho_eos.decoding.params import DecodeParams

_IDS = 2**24  # no vocabulary comes near it


class EngineConfig(Settings):
    model: str = setting(
        "tiny", "tiny, terse, tiny-blocks (built in), a checkpoint folder or a Hub id", min_length=1
    )
    revision: str | None = setting(None, "branch, tag or commit of a Hub model")
    adapter: Texts = setting(
        (), "LoRA adapter to merge into the weights, a folder or Hub id (ID@REVISION); repeatable"
    )
    device: str = setting("auto", "auto, cpu, cuda, cuda:N or mps", min_length=1)
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = setting(
        "auto", "precision of the products; auto: as the weights are stored, where that is fast"
    )
    quantization: Literal["none", "int8", "int4"] = setting(
        "none", "smaller weights of the layers: int8 for speed, int4 for memory"
    )
    max_rows: int = setting(32, "sequences per forward", ge=1, le=65_536)
    max_positions: int = setting(
        16384, "prompt and canvas positions per forward, over all rows", ge=1, le=2**30
    )
    logits_megabytes: int = setting(64, "largest piece of logits held at once", ge=1, le=2**20)
    max_cache_megabytes: int = setting(
        4096,
        "memory for cached keys and values; a row that finds no room runs exact",
        ge=0,
        le=2**30,
    )
    attention: Literal["auto", "full", "blocks"] = setting(
        "auto",
        "whether positions see all others or their own and earlier blocks, for models that come "
        "as both and whose config cannot tell (A2D); auto: blocks if the name holds bd3lm",
    )
    mask_token_id: int | None = setting(None, "MASK id, if not the checkpoint's", ge=0, le=_IDS)
    eos_token_id: int | None = setting(None, "EOS id, if not the checkpoint's", ge=0, le=_IDS)
    end_of_turn_id: int | None = setting(
        None, "end-of-turn id, if not the tokenizer's", ge=0, le=_IDS
    )
    defaults: dict[str, Any] = setting({}, "decoding parameters of requests that do not say")
    plugin: Texts = setting(
        (), "module or file.py with policies, rules, caches, families or tasks; repeatable"
    )

    @model_validator(mode="after")
    def _check_defaults(self) -> Self:
        if self.defaults:
            DecodeParams.from_mapping(self.defaults)
        return self


class EngineOptions(TypedDict, total=False):
    """The fields of `EngineConfig` but `model`, as keywords that a type checker knows."""

    revision: str | None
    adapter: str | Sequence[str]
    device: str
    dtype: Literal["auto", "float32", "bfloat16", "float16"]
    quantization: Literal["none", "int8", "int4"]
    max_rows: int
    max_positions: int
    logits_megabytes: int
    defaults: dict[str, Any]
    max_cache_megabytes: int
    attention: Literal["auto", "full", "blocks"]
    mask_token_id: int | None
    eos_token_id: int | None
    end_of_turn_id: int | None
    plugin: str | Sequence[str]
