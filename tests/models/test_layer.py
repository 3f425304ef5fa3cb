"""Joined products give the logits of separate ones, and their parts keep their names."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from rho_eos.models.layer import join_products
from tests.models.parity import NAMES, recorded
from tests.models.parity import ONE_EACH_IN_BLOCKS as IN_BLOCKS


def logits(model: Any, name: str) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(recorded(name)[0][0][None]).logits
    return found


@pytest.mark.parametrize("name", [*NAMES, *IN_BLOCKS])
def test_joined_products_give_the_same_logits(
    parity_model: Callable[[str], Any], name: str
) -> None:
    model = copy.deepcopy(parity_model(name))
    separate = logits(model, name)
    names = {key: value.shape for key, value in model.state_dict().items()}
    join_products(model)
    assert {key: value.shape for key, value in model.state_dict().items()} == names
    assert torch.allclose(logits(model, name), separate, atol=1e-4, rtol=0)


def test_a_checkpoint_saved_from_joined_products_is_the_same(
    parity_model: Callable[[str], Any], tmp_path: Path
) -> None:
    model = copy.deepcopy(parity_model("a2d-qwen3"))
    model.save_pretrained(tmp_path / "before")
    join_products(model)
    model.save_pretrained(tmp_path / "after")
    before, after = (
        load_file(tmp_path / each / "model.safetensors") for each in ("before", "after")
    )
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


class Adapter(nn.Module):
    """What a library for adapters puts in the place of a layer."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer, self.weight, self.bias = layer, layer.weight, layer.bias

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.layer(input) + 0.5


@pytest.mark.parametrize("change", ["in place", "other data", "adapter", "norm", "moved"])
def test_whatever_is_done_to_a_part_is_seen(
    parity_model: Callable[[str], Any], change: str
) -> None:
    """Training, merging an adapter and wrapping a layer have the effect that they have without."""
    name = "a2d-qwen3"
    found = []
    for joined in (False, True):
        model = copy.deepcopy(parity_model(name))
        if joined:
            join_products(model)
            logits(model, name)
        layer = model.model.layers[0]
        with torch.no_grad():
            for each in (layer.self_attn.k_proj, layer.mlp.up_proj):
                if change == "in place":
                    each.weight.mul_(1.5)
                elif change == "other data":
                    each.weight.data = each.weight.data * 1.5
            if change == "norm":
                layer.self_attn.q_norm.weight.mul_(2)
            if change == "adapter":
                layer.self_attn.v_proj = Adapter(layer.self_attn.v_proj)
                layer.mlp.gate_proj = Adapter(layer.mlp.gate_proj)
            if change == "moved":
                model = model.double().float()
        found.append(logits(model, name))
    assert torch.allclose(*found, atol=1e-4, rtol=0)
    if change != "moved":
        assert not torch.allclose(found[0], logits(parity_model(name), name), atol=1e-2)


def test_gradients_reach_every_part(parity_model: Callable[[str], Any]) -> None:
    model = copy.deepcopy(parity_model("llada-gqa")).requires_grad_(True)
    join_products(model)
    model(recorded("llada-gqa")[0][0][None]).logits.square().mean().backward()
    assert all(weight.grad is not None for weight in model.parameters())
