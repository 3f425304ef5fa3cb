"""SDAR-MoE's layers: those of transformers' Qwen3-MoE."""

from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeModel, Qwen3MoePreTrainedModel

from rho_eos.models.backbone import BidirectionalStack, MaskedDiffusionHead
from rho_eos.models.families.sdar import SDARMoEConfig
from rho_eos.models.layers.experts import MERGED, OneByOne, WithExperts


class SDARMoEModel(WithExperts, BidirectionalStack, Qwen3MoeModel):
    config_class = SDARMoEConfig


class SeparateSDARMoEModel(OneByOne, SDARMoEModel):
    pass


class SeparateSDARMoEForMaskedLM(WithExperts, MaskedDiffusionHead, Qwen3MoePreTrainedModel):
    config_class = SDARMoEConfig
    stack_class = SeparateSDARMoEModel


class SDARMoEForMaskedLM(WithExperts, MaskedDiffusionHead, Qwen3MoePreTrainedModel):
    config_class = SDARMoEConfig
    stack_class = SDARMoEModel
    separate = SeparateSDARMoEForMaskedLM
    weights = MERGED
