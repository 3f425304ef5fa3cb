"""iLLaDA: Llama's layers and weight names without the causal mask; grouped-query attention.

Its published config has no MASK id and its tokenizer need not declare one, so the id is looked for
under the names its authors use, and asked for where there is none.
"""

from typing import Any

from transformers import LlamaConfig, LlamaModel, LlamaPreTrainedModel

from rho_eos.base.errors import UserError
from rho_eos.models.backbone import BidirectionalStack, MaskedDiffusionHead
from rho_eos.models.family import Family, FamilyConfig, by_model_type


class ILLaDAConfig(FamilyConfig, LlamaConfig):
    model_type = "illada"
    architecture = "ILLaDAForCausalLM"
    layer_norm_eps: float | None = None
    mask_token_id: int | None = None
    # Llama's own defaults are ids of another tokenizer.
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if self.layer_norm_eps is not None:
            raise UserError(
                f"illada config field layer_norm_eps is {self.layer_norm_eps!r}, which asks for "
                "LayerNorm; only RMSNorm (layer_norm_eps null) is supported"
            )
        super().__post_init__(**kwargs)


class ILLaDAModel(BidirectionalStack, LlamaModel):
    config_class = ILLaDAConfig


class ILLaDAForMaskedLM(MaskedDiffusionHead, LlamaPreTrainedModel):
    config_class = ILLaDAConfig
    stack_class = ILLaDAModel


FAMILY = Family(
    config=ILLaDAConfig,
    stack=ILLaDAModel,
    masked_lm=ILLaDAForMaskedLM,
    matches=by_model_type("illada"),
    mask_names=("<[MASK]>", "<|mdm_mask|>", "<|mask|>"),
    end_of_turn_names=("<|eot_id|>", "<|role_end|>", "<|im_end|>"),
)
