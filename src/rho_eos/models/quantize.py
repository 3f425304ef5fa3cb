"""Quantised weights for the layers: int8 for speed, int4 for less memory.

A diffusion model computes whole canvases, so its forwards are bound by arithmetic. Activations are
therefore quantised too, each position by itself, and bytes are multiplied. Sums of bytes are exact,
so a row's result does not depend on its batch. int4 keeps weights in 4 bits and widens them to
bytes a tile at a time, so that a tile stays in a core's cache between widening and product; its
steps and offsets are themselves bytes, of which a weight has one pair for each group and one scale
for each output. Embedding and vocabulary projection are not quantised, because no later layer
averages out their error.

CPU and CUDA run the same code on torch's own kernels: no host waits, and a number of launches that
does not depend on the batch. What differs is how weights lie in memory, and the experts of a layer,
which on CUDA are one grouped product of widened weights (`models/layers/experts.py`).

Weights are quantised one after the other out of a memory-mapped file, so that the most memory in
use is the quantised model and one weight.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn
from torch.nn.functional import pad

from rho_eos.base.errors import UserError
from rho_eos.models.rounding import to_codes

#: Weights that share a step in int4: fewer where a row is short and one outlier weighs more.
SMALL_GROUP, LARGE_GROUP, LONG_ROW = 32, 64, 1024
_AT_A_TIME = 128  # rows of a weight that are quantised together: what fits into a cache
_MULTIPLE = 8  # of both sides of a product of bytes on CUDA
_LEAST_ROWS = 32  # of such a product; cuBLAS takes more than 16
#: Bytes of a tile of widened weights, and the most outputs it has. As measured: a smaller tile fits
#: a core's own cache, but activations are packed anew for the product with each.
_TILE, _WIDEST = 2**22, 512
#: What of a byte's range is left to rounding steps and offsets of int4.
_SLACK = 5


class QuantizedLinear(nn.Module):
    """A linear layer that multiplies bytes: a scale for each output and for each position."""

    scale: torch.Tensor
    bias: torch.Tensor | None

    def __init__(
        self, linear: nn.Linear, compute: torch.dtype, device: torch.device | None = None
    ) -> None:
        super().__init__()
        device = linear.weight.device if device is None else device
        self.in_features, self.out_features = linear.in_features, linear.out_features
        bias = (
            None if linear.bias is None else linear.bias.to(device=device, dtype=compute, copy=True)
        )
        self.register_buffer("bias", bias)
        self.group = LARGE_GROUP if self.in_features >= LONG_ROW else SMALL_GROUP
        self.more_in = -self.in_features % self._multiple
        self.more_out = -self.out_features % _MULTIPLE
        parts = (
            self._quantised(_padded(part.to(device=device, dtype=torch.float32), self.more_in))
            for part in linear.weight.split(_AT_A_TIME)
        )
        *weight, scale = (torch.cat(each) for each in zip(*parts, strict=True))
        self.register_buffer("scale", scale)
        self._keep(*(pad(each, (0, 0, 0, self.more_out)) for each in weight))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        rows = _padded(input.reshape(-1, self.in_features), self.more_in)
        count = len(rows)
        if rows.device.type == "cuda" and count < _LEAST_ROWS:
            rows = pad(rows, (0, 0, 0, _LEAST_ROWS - count))
        largest = torch.linalg.vector_norm(
            rows, torch.inf, dim=1, keepdim=True, dtype=torch.float32
        )
        scale = largest.div_(127).clamp_min_(1e-30)
        products = self._products((rows / scale).round_().to(torch.int8))
        exact = products[:count, : self.out_features] * scale[:count]
        output = torch.empty(exact.shape, dtype=input.dtype, device=input.device)
        if self.bias is None:
            torch.mul(exact, self.scale, out=output)
        else:
            torch.addcmul(self.bias, exact, self.scale, out=output)
        return output.view(*input.shape[:-1], self.out_features)

    def joins(self, other: "QuantizedLinear") -> bool:
        """Whether it can be one product with another layer of the same input, on a GPU."""
        alike = type(self) is type(other) and self.in_features == other.in_features
        both = (self.bias is None) == (other.bias is None)
        return alike and both and not self.more_out and self.scale.device.type != "cpu"

    def values(self, dtype: torch.dtype) -> torch.Tensor:
        """(out, in): the weight as numbers."""
        wide = self._bytes()[: self.out_features, : self.in_features]
        return wide * self.scale.to(dtype)[:, None]

    @property
    def _multiple(self) -> int:
        """What the length of a row is a multiple of; zeros fill it up."""
        return _MULTIPLE

    def _quantised(self, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Some outputs' weights as they are kept, and last the scale of each output."""
        raise NotImplementedError

    def _keep(self, *weight: torch.Tensor) -> None:
        """Lay the whole weight out as this device reads it."""
        raise NotImplementedError

    def _products(self, rows: torch.Tensor) -> torch.Tensor:
        """(rows, out) int32, of rows in int8."""
        raise NotImplementedError

    def _bytes(self) -> torch.Tensor:
        """(out, in) int8, with what was added to both sides."""
        raise NotImplementedError


class Int8Linear(QuantizedLinear):
    """Weights in int8."""

    def _quantised(self, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scale = _largest(rows) / _most(rows.device)
        return (rows / scale[:, None]).round_().to(torch.int8), scale

    def _keep(self, *weight: torch.Tensor) -> None:
        [rows] = weight
        # With VNNI and without it another kernel is the faster one, and each reads one layout. The
        # kernels of CUDA read weights as they come.
        turned = rows.device.type == "cpu" and sums_exactly()
        laid_out = rows.t().contiguous() if turned else rows.t()
        self.weight = nn.Parameter(laid_out, requires_grad=False)  # (in, out)

    def _products(self, rows: torch.Tensor) -> torch.Tensor:
        return torch._int_mm(rows, self.weight)

    def _bytes(self) -> torch.Tensor:
        return self.weight.t()


class Int4Linear(QuantizedLinear):
    """Weights in int4: a step and an offset in bytes for each group of them.

    The byte of a weight is `code * step + offset` in the arithmetic of bytes, which wraps around on
    its way to a sum that does not. Of two weights in one byte the second stands half a row behind
    the first. A tile holds some outputs: on a CPU `(in / 2, outputs)`, so that a step meets many
    outputs in one sweep; on CUDA one tile `(outputs, in / 2)` is the whole weight.
    """

    steps: torch.Tensor
    offsets: torch.Tensor

    @property
    def _multiple(self) -> int:
        return 2 * self.group

    def _quantised(self, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        most = _most(rows.device)
        scale = _largest(rows) / (most - _SLACK)
        groups = (rows / scale[:, None]).unflatten(1, (-1, self.group))
        step, offset, codes = to_codes(groups, most)
        first, second = codes.flatten(1).to(torch.uint8).chunk(2, 1)
        in_bytes = (each.to(torch.int32).to(torch.int8) for each in (step, offset))
        return first | second << 4, *in_bytes, scale

    def _keep(self, *weight: torch.Tensor) -> None:
        packed = weight[0]
        outputs = len(packed)
        self.along = 1
        if packed.device.type == "cpu":
            self.along = 0
            tiles = -(-outputs // min(_WIDEST, max(64, _TILE // (2 * packed.shape[1]))))
            outputs = -(-outputs // (16 * tiles)) * 16
        more = -len(packed) % outputs
        for name, each in zip(("weight", "steps", "offsets"), weight, strict=True):
            tiled = pad(each, (0, 0, 0, more)).unflatten(0, (-1, outputs))
            tiled = tiled.transpose(1, 2).contiguous() if self.along == 0 else tiled
            if name == "weight":
                self.weight = nn.Parameter(tiled, requires_grad=False)  # (tiles, in / 2, outputs)
            else:
                self.register_buffer(name, tiled.unsqueeze(self.along + 2))

    def _tile(self, number: int) -> torch.Tensor:
        """(in, outputs) int8."""
        packed, shape = self.weight[number], list(self.weight[number].shape)
        shape[self.along] *= 2
        wide = torch.empty(shape, dtype=torch.uint8, device=packed.device)
        first, second = wide.chunk(2, self.along)
        torch.bitwise_and(packed, 15, out=first)
        torch.bitwise_right_shift(packed, 4, out=second)
        groups = wide.view(torch.int8).unflatten(self.along, (-1, self.group))
        groups.mul_(self.steps[number]).add_(self.offsets[number])
        return wide.view(torch.int8) if self.along == 0 else wide.view(torch.int8).t()

    def _products(self, rows: torch.Tensor) -> torch.Tensor:
        tiles = [torch._int_mm(rows, self._tile(number)) for number in range(len(self.weight))]
        return tiles[0] if len(tiles) == 1 else torch.cat(tiles, 1)

    def _bytes(self) -> torch.Tensor:
        return torch.cat([self._tile(number).t() for number in range(len(self.weight))])


def _padded(rows: torch.Tensor, more: int) -> torch.Tensor:
    return pad(rows, (0, more)) if more else rows


def _largest(rows: torch.Tensor) -> torch.Tensor:
    """Of each row, without its sign; not 0, since it divides."""
    largest = torch.maximum(rows.amax(1), -rows.amin(1))
    return largest.clamp_min(256 * torch.finfo(torch.float32).tiny)


def _most(device: torch.device) -> int:
    """The largest weight in a byte. Without sums in 32 bit, pairs of products must fit into 16: 2 x
    255 x 63 does."""
    return 127 if device.type != "cpu" or sums_exactly() else 63


KINDS = {"int8": Int8Linear, "int4": Int4Linear}


@runtime_checkable
class Mergeable(Protocol):
    """Experts that lie one by one, and can be made one weight."""

    def merged(self, quantise: Callable[[nn.Linear], QuantizedLinear]) -> nn.Module: ...


def check_available(kind: str, device: torch.device) -> None:
    """Say, before anything is loaded, where a format cannot be had."""
    if kind == "none":
        return
    if device.type == "mps":
        raise UserError(
            f"quantization is {kind!r}, but on mps takes only none; int8 and int4 are there on "
            "cpu and cuda"
        )
    if device.type == "cuda" and torch.version.hip is None:
        major, minor = torch.cuda.get_device_capability(device)
        if (major, minor) < (7, 5):
            raise UserError(
                f"quantization is {kind!r}, but takes only none on a GPU of compute capability "
                f"{major}.{minor}: bytes are multiplied since 7.5 (Turing)"
            )


def exact_name(kind: str, device: torch.device) -> str:
    """The format and all that decides its numbers."""
    narrow = kind != "none" and _most(device) < 127
    how = f"{kind} widened to int8" if kind == "int4" else kind
    return f"{how}, weights of 7 bit" if narrow else how


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

    def quantised(linear: nn.Linear) -> QuantizedLinear:
        return KINDS[kind](linear, weights, device)

    def replace(module: Any) -> None:
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, quantised(child))
            elif device.type == "cuda" and isinstance(child, Mergeable):  # experts
                setattr(module, name, child.merged(quantised))
            else:
                replace(child)

    for number, layer in enumerate(model.model.layers):
        prepare(number)
        replace(layer)
    for module in model.modules():
        if not isinstance(module, QuantizedLinear):
            for weight in module.parameters(recurse=False):
                # A view of a mapped file keeps all of it: what is small gets memory of its own.
                weight.data = weight.data.to(weights, copy=weight.ndim == 1)


@cache
def sums_exactly() -> bool:
    """Whether bytes are multiplied into sums of 32 bit, as with VNNI; else 16, which saturate."""
    rows = torch.full((32, 1024), 127, dtype=torch.int8)
    sums = [torch._int_mm(rows, columns) for columns in (rows[:16].t(), rows.view(1024, 32))]
    return all(bool((each == 1024 * 127 * 127).all()) for each in sums)
