"""Where and how a model runs: its device, precision and format, decided before it is loaded."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from rho_eos.base.errors import UserError
from rho_eos.config import EngineConfig
from rho_eos.models import memory
from rho_eos.models.memory import gigabytes, needed_memory
from rho_eos.models.precision import Precision, choices_of_precision, name_of, stored_dtype
from rho_eos.models.quantize import check_available, exact_name


@dataclass(frozen=True, slots=True)
class Placement:
    device: torch.device
    precision: Precision
    quantization: str  # none, int8 or int4
    stored: torch.dtype
    needed: int  # bytes, by arithmetic
    free: int | None  # bytes, before loading

    def as_dict(self) -> dict[str, Any]:
        """For answers and records."""
        return {
            "device": str(self.device),
            **self.identity(),
            "weights_dtype": name_of(self.precision.weights),
            "memory_needed": self.needed,
            "memory_free": self.free,
        }

    def identity(self) -> dict[str, str]:
        """What of it decides results.

        Whether weights that were stored in 16 bit lie in memory so or widened does not: `dtype` is
        the precision that their values have either way.
        """
        narrow = min(self.stored, self.precision.weights, key=lambda dtype: dtype.itemsize)
        return {
            "dtype": name_of(narrow),
            "compute_dtype": name_of(self.precision.compute),
            "quantization": exact_name(self.quantization, self.device),
        }

    @property
    def sentence(self) -> str:
        """`cpu, bfloat16 computed in float32, int8; needs 9.6 GB, 19.8 GB are free`."""
        weights, compute = name_of(self.precision.weights), name_of(self.precision.compute)
        how = weights if weights == compute else f"{weights} computed in {compute}"
        quantized = "not quantised" if self.quantization == "none" else self.quantization
        free = "" if self.free is None else f", {gigabytes(self.free)} are free"
        return f"{self.device}, {how}, {quantized}; needs {gigabytes(self.needed)}{free}"


def choose_device(name: str) -> torch.device:
    """`auto` takes the best there is; a device that is asked for and absent is an error."""
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if name == "auto":
        return torch.device("cuda" if cuda else "mps" if mps else "cpu")
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (index and not index.isdigit()):
        raise UserError(f"device is {name!r}, but takes auto, cpu, cuda, cuda:N or mps")
    if (kind == "cuda" and not cuda) or (kind == "mps" and not mps):
        raise UserError(f"device is {name!r}, but this machine has no {kind}")
    if kind == "cuda" and index and int(index) >= torch.cuda.device_count():
        raise UserError(f"device is {name!r}, but there are only {torch.cuda.device_count()} GPUs")
    return torch.device(name)


def place(config: EngineConfig, checkpoint: Any, device: torch.device) -> Placement:
    """The best way that fits into free memory; where none does, what would, in one sentence."""
    best = describe(config, checkpoint, device)
    if best.free is not None and best.needed > best.free:
        raise UserError(_too_large(config, checkpoint, best))
    return best


def describe(config: EngineConfig, checkpoint: Any, device: torch.device) -> Placement:
    """The same, but where none fits, the one that needs least."""
    check_available(config.quantization, device)
    ways = list(_ways(config, checkpoint, device))
    fitting = (way for way in ways if way.free is None or way.needed <= way.free)
    return next(fitting, min(ways, key=lambda way: way.needed))


def _ways(config: EngineConfig, checkpoint: Any, device: torch.device) -> Iterator[Placement]:
    free = memory.free_memory(device)
    stored = stored_dtype(checkpoint.stored_dtypes)
    positions = min(config.max_positions, checkpoint.context_length)
    precisions = choices_of_precision(config.dtype, device, stored)
    if config.quantization != "none":  # to save memory, so what is left wide is not widened
        precisions.reverse()
    for precision in precisions:
        needed = needed_memory(
            checkpoint, precision, config.quantization, positions, config.logits_megabytes * 2**20
        )
        yield Placement(device, precision, config.quantization, stored, needed, free)


def _too_large(config: EngineConfig, checkpoint: Any, tried: Placement) -> str:
    """That it does not fit as asked, and which options would make it fit."""
    assert tried.free is not None
    fitting = []
    for name, value in (("dtype", "bfloat16"), ("quantization", "int8"), ("quantization", "int4")):
        other = config.replaced(**{name: value})
        try:
            check_available(other.quantization, tried.device)
        except UserError:
            continue
        needed = min(way.needed for way in _ways(other, checkpoint, tried.device))
        if needed < tried.needed and needed <= tried.free:
            fitting.append(f"--{name} {value} ({gigabytes(needed)})")
    advice = "nothing that is offered here would fit"
    if fitting:
        advice = f"these would fit: {', '.join(fitting)}"
    return (
        f"{config.model} needs {gigabytes(tried.needed)} of memory on {tried.device} as asked, "
        f"but {gigabytes(tried.free)} are free; {advice}"
    )
