"""Every name in a published checkpoint leads to the weight that was loaded from it."""

import pytest
import torch
from safetensors.torch import load_file

from rho_eos.models.auto import AutoModelForMaskedLM
from rho_eos.models.names import WeightNames
from tests.models.parity import PARITY, WHOLE


@pytest.mark.parametrize("name", WHOLE)
def test_a_published_name_means_the_weight_that_its_file_holds(name: str) -> None:
    model = AutoModelForMaskedLM.from_pretrained(PARITY / name)
    names = WeightNames(model)
    for published, stored in load_file(PARITY / name / "model.safetensors").items():
        parts = names.parts(published)
        assert parts, published
        found = torch.cat([names.tensor(part).detach() for part in parts])
        assert torch.equal(found, stored.to(found.dtype)), published


def test_our_own_names_and_those_of_a_bare_stack_are_known_too() -> None:
    names = WeightNames(AutoModelForMaskedLM.from_pretrained(PARITY / "llada-gqa"))
    ours = names.parts("model.layers.1.mlp.gate_proj.weight")
    assert ours == names.parts("model.transformer.blocks.1.ff_proj.weight")
    assert ours == names.parts("transformer.blocks.1.ff_proj.weight")
    assert names.parts("model.layers.1.mlp.gate_proj.bias") == ()
    assert names.parts("model.transformer.blocks.77.ff_proj.weight") == ()


def test_an_expert_that_there_is_not_is_no_weight() -> None:
    names = WeightNames(AutoModelForMaskedLM.from_pretrained(PARITY / "sdar-moe"))
    assert names.parts("model.layers.0.mlp.experts.0.up_proj.weight")
    assert names.parts("model.layers.0.mlp.experts.4096.up_proj.weight") == ()


def test_what_is_written_into_a_part_is_in_the_model() -> None:
    model = AutoModelForMaskedLM.from_pretrained(PARITY / "sdar-moe")
    names = WeightNames(model)
    [part] = names.parts("model.layers.0.mlp.experts.1.up_proj.weight")
    with torch.no_grad():
        names.tensor(part).fill_(7)
    half = model.config.moe_intermediate_size
    merged = model.model.layers[0].mlp.experts.gate_up_proj
    assert (merged[1, half:] == 7).all()
    assert (merged == 7).sum() == merged[1, half:].numel()
