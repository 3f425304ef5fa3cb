"""What a process decides once: which model, where it runs, how much runs together."""

from typing import Any, Literal

from rho_eos.base.settings import Settings, Texts, setting
from rho_eos.decoding.params import LONGEST, DecodeParams

_IDS = 2**24  # no vocabulary comes near it


class EngineConfig(Settings):
    model: str = setting(
        "tiny", "tiny, terse (built in), a checkpoint folder or a Hub id", min_length=1
    )
    revision: str | None = setting(None, "branch, tag or commit of a Hub model")
    device: str = setting("auto", "auto, cpu, cuda, cuda:N or mps", min_length=1)
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = setting(
        "auto", "precision of the products; auto: as the weights are stored, where that is fast"
    )
    quantization: Literal["none", "int8", "int4"] = setting(
        "none", "smaller weights of the layers: int8 for speed, int4 for memory"
    )
    compile: bool = setting(False, "compile the layers (torch.compile): for CUDA, slow to start")
    max_rows: int = setting(32, "sequences per forward", ge=1, le=65_536)
    max_positions: int = setting(
        16384, "prompt and canvas positions per forward, over all rows", ge=1, le=2**30
    )
    logits_megabytes: int = setting(64, "largest piece of logits held at once", ge=1, le=2**20)
    cache: Literal["none", "window"] | None = setting(
        None, "cache of requests that do not say (see the decoding parameter)"
    )
    cache_window: int | None = setting(None, "likewise", ge=1, le=LONGEST)
    cache_back: int | None = setting(None, "likewise", ge=0, le=LONGEST)
    cache_commits: int | None = setting(None, "likewise", ge=1, le=LONGEST)
    cache_steps: int | None = setting(None, "likewise", ge=1, le=LONGEST)
    cache_unsure: float | None = setting(None, "likewise", ge=0, le=1)
    max_cache_megabytes: int = setting(
        4096,
        "memory for cached keys and values; a row that finds no room runs exact",
        ge=0,
        le=2**30,
    )
    mask_token_id: int | None = setting(None, "MASK id, if not the checkpoint's", ge=0, le=_IDS)
    eos_token_id: int | None = setting(None, "EOS id, if not the checkpoint's", ge=0, le=_IDS)
    end_of_turn_id: int | None = setting(
        None, "end-of-turn id, if not the tokenizer's", ge=0, le=_IDS
    )
    plugin: Texts = setting(
        (), "module or file.py with policies, families or tasks of your own; repeatable"
    )

    def request_defaults(self) -> dict[str, Any]:
        """Decoding parameters that this process gives to requests that do not say."""
        return {
            name: value
            for name, value in self.model_dump().items()
            if name in DecodeParams.model_fields and value is not None
        }
