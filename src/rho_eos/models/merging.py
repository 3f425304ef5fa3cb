"""Puts adapters into the weights of a model, by PEFT's own arithmetic, a layer at a time.

Each weight is taken by itself into a module that has the name by which the adapter knows it, so
that PEFT finds scale, rank and patterns as it did in training. It is computed in float32 and
rounded once, to the type in which the model keeps its weights. A layer is merged just before it is
quantised, so that no second copy of the model exists.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from safetensors import safe_open
from torch import nn

from rho_eos.base.errors import UserError, first_line
from rho_eos.models.adapters import Adapter, Change
from rho_eos.models.names import Part, WeightNames


class Merger:
    """Merges what adapters change, each weight once, in the order in which they were given."""

    def __init__(self, model: nn.Module, adapters: Sequence[Adapter]) -> None:
        self._model = model
        self._names = WeightNames(model)
        # `open_adapters` names what an adapter replaces before what is added to it.
        self._left = [
            (each, change, self._names.parts(change.weight))
            for each in adapters
            for change in each.changes
        ]
        for adapter in adapters:
            adapter.fetch()

    def layer(self, number: int) -> None:
        """Merge what belongs to one layer."""
        self.merge(f"model.layers.{number}.")

    @torch.no_grad()
    def merge(self, start: str = "") -> None:
        """Merge what is left of the weights whose names begin so."""
        left, self._left = self._left, []
        for adapter, change, parts in left:
            if not parts[0].name.startswith(start):
                self._left.append((adapter, change, parts))
                continue
            weight, bias = self._merged(adapter, change)
            self._put(parts, weight)
            if change.bias and bias is not None:
                self._put(self._names.parts(change.bias), bias)

    def _merged(self, adapter: Adapter, change: Change) -> tuple[torch.Tensor, torch.Tensor | None]:
        with safe_open(adapter.file, framework="pt") as file:
            own = {ours: file.get_tensor(key) for ours, key in change.keys.items()}
        if not all(each.isfinite().all() for each in own.values()):
            raise UserError(
                f"the adapter {adapter.given} holds NaN or infinity for {change.weight}"
            )
        if change.replaces:
            return own[""], None
        weight = self._read(change.weight)
        bias = self._read(change.bias) if change.bias else None
        try:
            return _by_peft(adapter, change.module, own, weight, bias)
        except (RuntimeError, ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"the adapter {adapter.given} cannot be merged into {change.module}: "
                f"{first_line(error)}"
            ) from error

    def _read(self, name: str) -> torch.Tensor:
        """The weight as it is published, a copy in float32."""
        pieces = [self._names.tensor(part) for part in self._names.parts(name)]
        return torch.cat(pieces).to(torch.float32, copy=True)

    def _put(self, parts: tuple[Part, ...], weight: torch.Tensor) -> None:
        sizes = [len(self._names.tensor(part)) for part in parts]
        for part, piece in zip(parts, weight.split(sizes), strict=True):
            old = self._names.tensor(part)
            if part.index or not isinstance(old, nn.Parameter):
                old.copy_(piece)
                continue
            # A new one, since the old may be a mapped file, or that of a tied weight too.
            path, _, leaf = part.name.rpartition(".")
            new = nn.Parameter(piece.to(old.dtype, copy=len(parts) > 1), requires_grad=False)
            setattr(self._model.get_submodule(path), leaf, new)


def _by_peft(
    adapter: Adapter,
    module: str,
    own: dict[str, torch.Tensor],
    weight: torch.Tensor,
    bias: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """What PEFT makes of one weight, and of its bias."""
    from peft import LoraConfig, inject_adapter_in_model, set_peft_model_state_dict

    base: Any
    with torch.device("meta"):
        if "lora_embedding_A" in own:
            base = nn.Embedding(*weight.shape)
        else:
            base = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    base.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        base.bias = nn.Parameter(bias, requires_grad=False)
    root = here = nn.Module()
    *path, leaf = module.split(".")
    for name in path:
        here.add_module(name, below := nn.Module())
        here = below
    here.add_module(leaf, base)
    config = LoraConfig(
        **adapter.settings, target_modules=[module], init_lora_weights=False, inference_mode=True
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inject_adapter_in_model(config, root)
        tensors = {f"{module}.{name}": each.float() for name, each in own.items()}
        loaded: Any = set_peft_model_state_dict(root, tensors)
        if loaded.unexpected_keys:
            raise UserError(f"PEFT does not know {loaded.unexpected_keys[0]}")
        layer: Any = root.get_submodule(module)
        layer.merge(safe_merge=True)  # which refuses NaN
    merged = layer.get_base_layer()
    return merged.weight.data, None if bias is None else merged.bias.data
