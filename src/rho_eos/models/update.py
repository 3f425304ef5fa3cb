"""New weights for a model that is in use: checked and laid out beside it, then exchanged at once.

Whatever is wrong with them is found while the old ones still run. The exchange writes into the
tensors that are there, so that optimizers, views and captured graphs keep them, and puts all of
them back if it fails on the way.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn

from rho_eos.base.errors import UserError
from rho_eos.models.adapters import open_adapters
from rho_eos.models.hub import CONFIGS
from rho_eos.models.loading import Checkpoint, load_model
from rho_eos.models.names import Part, WeightNames
from rho_eos.models.placement import Placement
from rho_eos.models.quantize import QuantizedLinear
from rho_eos.models.weights import tensors_of, weight_files

NamedTensors = Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]]
#: What is given: named tensors, or where they are. A folder holds a checkpoint or an adapter.
Weights = NamedTensors | str | Path
#: A tensor of the model, and what is to stand in it.
Exchange = tuple[torch.Tensor, torch.Tensor]
#: What trainers put before the names of the model that they have wrapped.
_WRAPPERS = re.compile(r"^(?:module\.)+|\b(?:_orig_mod|_fsdp_wrapped_module)\.")


class Updates:
    """Makes updates for one loaded model."""

    def __init__(self, model: Any, checkpoint: Checkpoint, placement: Placement) -> None:
        self._model, self._checkpoint, self._placement = model, checkpoint, placement

    @cached_property
    def _names(self) -> WeightNames:
        """Those of the same model before anything was quantised."""
        with torch.device("meta"):
            return WeightNames(type(self._model)(self._checkpoint.config))

    @torch.no_grad()
    def staged(self, weights: Weights) -> list[Exchange]:
        """What is to be exchanged. Raises `UserError` where anything does not fit."""
        if isinstance(weights, str | Path):
            folder = Path(weights).expanduser()
            if (folder / CONFIGS["adapter"]).exists():
                return self._with_adapter(str(folder))
            weights = _read(folder)
        elif isinstance(weights, Mapping):
            weights = weights.items()
        modules: dict[str, dict[str, torch.Tensor]] = {}  # those that are quantised as a whole
        pairs: list[Exchange] = []
        tensors = self._model.state_dict(keep_vars=True)
        seen: set[str] = set()  # slices have no hash in Python 3.11
        for given, tensor in weights:
            name = _WRAPPERS.sub("", given)
            for part, piece in self._pieces(name, given, tensor):
                if (where := repr(part)) in seen:
                    raise UserError(f"{given} is given twice, or under two names")
                seen.add(where)
                path, _, leaf = part.name.rpartition(".")
                if isinstance(self._module(path), QuantizedLinear):
                    modules.setdefault(path, {})[leaf] = piece
                else:
                    old = tensors[part.name][part.index]
                    pairs.append((old, piece.to(old.device, old.dtype)))
        if not seen:
            raise UserError("weights takes at least one tensor")
        for path, own in modules.items():
            pairs += self._quantized(path, own)
        return pairs

    def _pieces(
        self, name: str, given: str, tensor: torch.Tensor
    ) -> Iterator[tuple[Part, torch.Tensor]]:
        """The weights of ours that a tensor is made of, if it fits."""
        if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
            kind = getattr(tensor, "dtype", type(tensor).__name__)
            raise UserError(f"{given} is {kind}, but takes a tensor of floating-point numbers")
        parts = self._names.parts(name)
        if not parts:
            wrapped = "lora_" in name or ".base_layer." in name
            hint = "; merge the adapter first, or give its folder" if wrapped else ""
            raise UserError(f"{given} is no weight of this model{hint}")
        ours = [self._names.tensor(part) for part in parts]
        shape = (sum(len(each) for each in ours), *ours[0].shape[1:])
        if tuple(tensor.shape) != shape:
            raise UserError(f"{given} has the shape {tuple(tensor.shape)}, but takes {shape}")
        if not bool(tensor.isfinite().all()):
            raise UserError(f"{given} holds NaN or infinity")
        pieces = tensor.detach().split([len(each) for each in ours])
        yield from zip(parts, pieces, strict=True)

    def _module(self, path: str) -> nn.Module:
        try:
            return self._model.get_submodule(path)
        except AttributeError:
            raise UserError(
                f"{path} cannot be updated: experts that were quantised on a GPU are one weight"
            ) from None

    def _quantized(self, path: str, own: dict[str, torch.Tensor]) -> list[Exchange]:
        """A layer quantised anew. Its bias is not quantised, and may come alone."""
        module: Any = self._module(path)
        if "weight" not in own:
            return [(module.bias, own["bias"].to(module.bias))]
        bias = own.get("bias", module.bias)
        with torch.device("meta"):
            linear = nn.Linear(module.in_features, module.out_features, bias=bias is not None)
        linear.weight = nn.Parameter(own["weight"], requires_grad=False)
        if bias is not None:
            linear.bias = nn.Parameter(bias, requires_grad=False)
        new = type(module)(linear, self._placement.weights, module.weight.device).state_dict()
        return [(old, new[name]) for name, old in module.state_dict(keep_vars=True).items()]

    def _with_adapter(self, folder: str) -> list[Exchange]:
        """All weights of the checkpoint with this adapter alone, whatever is there now."""
        found = self._checkpoint
        adapters = open_adapters((folder,), found.family, found.config)
        merged = load_model(replace(found, adapters=adapters), self._placement).state_dict()
        own = self._model.state_dict(keep_vars=True)
        return [(old, merged[name]) for name, old in own.items()]


@torch.no_grad()
def exchange(pairs: list[Exchange]) -> None:
    """Write the new values in; where that fails, all old values are there again."""
    kept: list[Exchange] = []
    try:
        for old, new in pairs:
            kept.append((old, old.clone()))
            _write(old, new)
    except BaseException:
        for old, before in reversed(kept):
            old.copy_(before)
        raise


def _write(old: torch.Tensor, new: torch.Tensor) -> None:
    old.copy_(new)


def _read(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a safetensors file, or of all files of a checkpoint folder."""
    files = weight_files(path) if path.is_dir() else (path,)
    for file in files:
        if not file.is_file():
            raise UserError(f"there are no weights at {str(file)!r}")
        names = [name for name, _, _ in tensors_of(file)]
        with safe_open(file, framework="pt") as opened:
            for name in names:
                yield name, opened.get_tensor(name)
