"""In which precision a model computes, and in which it keeps its weights.

The two differ on CPUs without arithmetic in 16 bit. There a product of bfloat16 numbers is several
times slower than one of float32, so it is computed in float32; but weights that were stored in 16
bit lose nothing by staying so in memory, and are widened a piece at a time (`models/widening.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

#: What safetensors calls the types that weights come in.
STORED = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
#: What a CPU says that multiplies such numbers itself (torch.cpu.get_capabilities).
_NATIVE = {
    torch.bfloat16: ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16"),
    torch.float16: ("avx512_fp16", "amx_fp16", "fp16_arith"),
}


@dataclass(frozen=True, slots=True)
class Precision:
    """`weights`: as they lie in memory. `compute`: of activations and products."""

    weights: torch.dtype
    compute: torch.dtype


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def stored_dtype(stored_dtypes: Sequence[str]) -> torch.dtype:
    """The type of most of the weights. A published config need not name it, and may be wrong."""
    return STORED.get(stored_dtypes[0], torch.float32) if stored_dtypes else torch.float32


def choices_of_precision(asked: str, device: torch.device, stored: torch.dtype) -> list[Precision]:
    """The ways to run as asked, best first; a later one only needs less memory for the same result.

    `auto` computes as the weights are stored, where the device can.
    """
    if asked == "auto":
        wanted = torch.float32 if stored == torch.float64 else stored
    else:
        wanted = getattr(torch, asked)
    compute = wanted if native(wanted, device) else torch.float32
    narrow = wanted if asked != "auto" and wanted.itemsize < 4 else stored
    ways = [Precision(compute, compute)]
    if device.type == "cpu" and narrow.itemsize < compute.itemsize:
        ways.append(Precision(narrow, compute))
        if narrow != stored:  # asked to round the weights: they must be, also where all fits
            ways.pop(0)
    return ways


def native(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the device multiplies such numbers at their full speed."""
    if device.type != "cpu" or dtype not in _NATIVE:
        return True
    return any(bool(_capabilities().get(name)) for name in _NATIVE[dtype])


def _capabilities() -> Mapping[str, Any]:
    return torch.cpu.get_capabilities()
