"""Importing this registers every family with transformers' Auto classes."""

from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

from rho_eos.models.family import FAMILIES

for _family in FAMILIES.all().values():
    AutoConfig.register(_family.name, _family.config, exist_ok=True)
    AutoModel.register(_family.config, _family.masked_lm.stack_class, exist_ok=True)
    AutoModelForMaskedLM.register(_family.config, _family.masked_lm, exist_ok=True)
