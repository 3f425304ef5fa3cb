"""Quantised weights for the layers: int8 for speed, int4 for less memory.

A diffusion model computes whole canvases, so on a CPU its forwards are bound by arithmetic. int8
therefore quantises activations too, each position by itself, and multiplies bytes. Sums of bytes
are exact, so a row's result does not depend on its batch. int4 keeps activations as they are: its
weights are smaller still and its products slower. On CUDA torchao does both. Embedding and
vocabulary projection are not quantised, because no later layer averages out their error.

Weights are quantised one after the other out of a memory-mapped file, so that the most memory in
use is the quantised model and one weight.
"""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn
from torch.nn.functional import pad

from rho_eos.base.errors import UserError, needs_extra

#: Weights that share a scale in int4: fewer where a row is short and one outlier weighs more.
SMALL_GROUP, LARGE_GROUP, LONG_ROW = 32, 64, 1024
_OUT_MULTIPLE = 16  # of rows in a packed int4 weight
_AT_A_TIME = 128  # rows of a weight that are quantised together: what fits into a cache


class Int8Linear(nn.Module):
    """Weights in int8, a scale for each output; activations in int8, a scale for each position."""

    scale: torch.Tensor
    bias: torch.Tensor | None

    def __init__(self, linear: nn.Linear, compute: torch.dtype) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        parts = [_to_bytes(part) for part in linear.weight.split(_AT_A_TIME)]
        bytes_, scale = (torch.cat(each) for each in zip(*parts, strict=True))
        # With VNNI and without it another kernel is the faster one, and each reads one layout.
        laid_out = bytes_.t().contiguous() if sums_exactly() else bytes_.t()
        self.weight = nn.Parameter(laid_out, requires_grad=False)  # (in, out)
        self.register_buffer("scale", scale)
        bias = None if linear.bias is None else linear.bias.to(compute, copy=True)
        self.register_buffer("bias", bias)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        rows = input.reshape(-1, self.in_features).float()
        scale = rows.abs().amax(1, keepdim=True).div_(127).clamp_min_(1e-30)
        products = torch._int_mm((rows / scale).round_().to(torch.int8), self.weight)
        output = products.to(torch.float32).mul_(scale).mul_(self.scale).to(input.dtype)
        output = output if self.bias is None else output + self.bias
        return output.view(*input.shape[:-1], self.out_features)


class Int4Linear(nn.Module):
    """Weights in int4, a scale and an offset for each group of them; products in bfloat16."""

    scales: torch.Tensor
    bias: torch.Tensor | None

    def __init__(self, linear: nn.Linear, compute: torch.dtype) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.group = LARGE_GROUP if self.in_features >= LONG_ROW else SMALL_GROUP
        self.more_in = -self.in_features % self.group
        more_out = -self.out_features % _OUT_MULTIPLE
        narrow = pad(linear.weight, (0, self.more_in, 0, more_out))
        parts = [_to_codes(part, self.group) for part in narrow.split(_AT_A_TIME)]
        codes, scale, middle = (torch.cat(each) for each in zip(*parts, strict=True))
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1)
        self.weight = nn.Parameter(packed, requires_grad=False)
        both = torch.stack((scale, middle), -1).transpose(0, 1).contiguous()
        self.register_buffer("scales", both)  # (groups, out, 2)
        bias = None if linear.bias is None else linear.bias.to(compute, copy=True)
        self.register_buffer("bias", bias)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        rows = input.reshape(-1, self.in_features).bfloat16()
        rows = pad(rows, (0, self.more_in)) if self.more_in else rows.contiguous()
        output: torch.Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            rows, self.weight, self.group, self.scales
        )
        output = output[:, : self.out_features].to(input.dtype)
        output = output if self.bias is None else output + self.bias
        return output.reshape(*input.shape[:-1], self.out_features)


def _to_bytes(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows as int8, and the scale of each."""
    values = weight.to(torch.float32, copy=True)
    largest = torch.maximum(values.amax(1), -values.amin(1))
    # Without sums in 32 bit, pairs of products must fit into 16: 2 x 255 x 63 does.
    most = 127 if sums_exactly() else 63
    scale = (largest / most).clamp_min(torch.finfo(torch.float32).tiny)
    return values.div_(scale[:, None]).round_().to(torch.int8), scale


def _to_codes(weight: torch.Tensor, group: int) -> tuple[torch.Tensor, ...]:
    """Rows as numbers from 0 to 15, and of each group the scale and the value of 8."""
    groups = weight.to(torch.float32, copy=True).view(len(weight), -1, group)
    low, high = groups.amin(-1), groups.amax(-1)
    # The kernel multiplies with what bfloat16 leaves of a scale, so that is what is divided by.
    scale = ((high - low) / 15).clamp_min(1e-9).bfloat16()
    middle = (low + 8 * scale.float()).bfloat16()
    steps = groups.sub_(middle.float()[..., None]).div_(scale.float()[..., None]).add_(8)
    return steps.round_().clamp_(0, 15).to(torch.int32).view_as(weight), scale, middle


ON_CPU = {"int8": Int8Linear, "int4": Int4Linear}
QUANTIZED = (Int8Linear, Int4Linear)


def check_available(kind: str, device: torch.device) -> None:
    """Say, before anything is loaded, where a format cannot be had."""
    if kind == "none":
        return
    if device.type == "mps":
        raise UserError(
            f"quantization is {kind!r}, but on mps takes only none; int8 and int4 are there on "
            "cpu and cuda"
        )
    if device.type == "cuda" and find_spec("torchao") is None:
        raise needs_extra(f"quantization {kind} on cuda", "torchao", "quant")


def exact_name(kind: str, device: torch.device) -> str:
    """The format and all that decides its numbers."""
    if kind == "int8" and device.type == "cpu" and not sums_exactly():
        return "int8, weights of 7 bit"
    return kind


def quantize(
    model: Any,
    kind: str,
    device: torch.device,
    weights: torch.dtype,
    prepare: Callable[[int], None] = lambda _: None,
) -> None:
    """Quantise the linear layers of a model in place, and keep the rest in `weights`.

    `prepare` gets the number of each layer just before that is quantised.
    """
    if device.type == "cuda":
        _with_torchao(model, kind, device, prepare)
        return
    for number, layer in enumerate(model.model.layers):
        prepare(number)
        for module in list(layer.modules()):
            for name, child in list(module.named_children()):
                if isinstance(child, nn.Linear):
                    setattr(module, name, ON_CPU[kind](child, weights))
    for module in model.modules():
        if not isinstance(module, QUANTIZED):
            for weight in module.parameters(recurse=False):
                # A view of a mapped file keeps all of it: what is small gets memory of its own.
                weight.data = weight.data.to(weights, copy=weight.ndim == 1)


@cache
def sums_exactly() -> bool:
    """Whether bytes are multiplied into sums of 32 bit, as with VNNI; else 16, which saturate."""
    rows = torch.full((32, 1024), 127, dtype=torch.int8)
    sums = [torch._int_mm(rows, columns) for columns in (rows[:16].t(), rows.view(1024, 32))]
    return all(bool((each == 1024 * 127 * 127).all()) for each in sums)


def _with_torchao(
    model: Any, kind: str, device: torch.device, prepare: Callable[[int], None]
) -> None:
    """Written to torchao's documentation; nobody has run it on a GPU yet."""
    from torchao.quantization import (  # type: ignore[import-not-found]
        Int4WeightOnlyConfig,
        Int8DynamicActivationInt8WeightConfig,
        quantize_,
    )

    if kind == "int8":
        config = Int8DynamicActivationInt8WeightConfig()
    else:
        config = Int4WeightOnlyConfig(group_size=128, int4_packing_format="tile_packed_to_4d")
    for number, layer in enumerate(model.model.layers):
        prepare(number)
        layer.to(device)
        quantize_(layer, config)
