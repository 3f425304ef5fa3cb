"""What a device was asked for: kernels with their bytes and multiplications, copies and waits."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch, and what it reads, writes and multiplies."""

    name: str
    line: str  # of the package, the innermost on the stack
    bytes: int
    flops: int


@dataclass(frozen=True, slots=True)
class Copy:
    """One between host and device."""

    line: str
    bytes: int
    waits: bool


@dataclass(slots=True)
class Ledger:
    kernels: list[Kernel] = field(default_factory=list)
    to_device: list[Copy] = field(default_factory=list)
    to_host: list[Copy] = field(default_factory=list)
    waits: Counter[tuple[str, str]] = field(default_factory=Counter)  # for a value or a shape
    dtypes: set[torch.dtype] = field(default_factory=set)
    operations: set[Any] = field(default_factory=set)

    @property
    def syncs(self) -> int:
        """How often the host waits until the device has done all that it was asked for."""
        copies = sum(each.waits for each in (*self.to_device, *self.to_host))
        return copies + self.waits.total()

    def launches(self, where: str | tuple[str, ...] = "") -> int:
        """Kernels that were launched from files whose path in the package begins so."""
        return sum(each.line.startswith(where) for each in self.kernels)

    def by_line(self) -> str:
        """For the message of a test that fails."""
        counted = Counter((each.line, each.name) for each in self.kernels)
        copies = [
            *(("to device", c) for c in self.to_device),
            *(("to host", c) for c in self.to_host),
        ]
        lines = [f"{count:5} {line} {name}" for (line, name), count in sorted(counted.items())]
        lines += [f"      {c.line} {way}{', waits' if c.waits else ''}" for way, c in copies]
        return "\n".join([*lines, *map(str, self.waits)])


def size_of(x: Any) -> int:
    return sum(t.numel() * t.itemsize for t in tree_leaves(x) if isinstance(t, torch.Tensor))


def cost_of(packet: Any, args: Any, kwargs: Any, result: Any) -> tuple[int, int]:
    """Bytes that a kernel moves, and its floating point operations."""
    moved = size_of((args, kwargs)) + size_of(result)
    if packet in (aten.embedding, aten.index_select, aten.gather, aten.index):
        moved = 2 * size_of(result) + size_of(args[1:])  # it reads what it returns, not the table
    elif packet in (aten.index_copy_, aten.index_put_, aten._index_put_impl_):
        moved = 2 * size_of(args[1:])
    elif packet in (aten.copy_, aten.fill_, aten.zero_):
        moved = size_of(args)
    flops = _FLOPS.get(packet)
    return moved, 0 if flops is None else flops(args)


def _product(left: int, right: int) -> Callable[[Any], int]:
    return lambda args: 2 * args[left].numel() * args[right].shape[-1]


_FLOPS = {
    aten.mm: _product(0, 1),
    aten.bmm: _product(0, 1),
    aten.addmm: _product(1, 2),
    aten.addmm_: _product(1, 2),
    aten._int_mm: _product(0, 1),
    aten._grouped_mm: _product(0, 1),
}
