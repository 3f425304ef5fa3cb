"""Where and how a model runs: its device, precision and format, decided before it is loaded.

Precision has two sides, what is computed in and what weights are kept in. They differ on CPUs
without arithmetic in 16 bit. There a product of bfloat16 numbers is several times slower than one
of float32, so it is computed in float32; but weights that were stored in 16 bit lose nothing by
staying so in memory, and are widened a piece at a time (`models/widening.py`).

How much memory is needed and how much is free is asked before loading: a machine that runs out of
memory ends this process, or another, without a message. What a model needs is its weights and one
forward over its whole context. What is free beyond that is shared by larger batches and by kept
keys and values, up to what was allowed for either.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from rho_eos.base.errors import UserError
from rho_eos.config import EngineConfig
from rho_eos.models.quantize import check_available, exact_name

#: What safetensors calls the types that weights come in, beside F32.
_STORED = {"F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16}
#: What a CPU says that multiplies such numbers itself (torch.cpu.get_capabilities).
_NATIVE = {
    torch.bfloat16: ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16"),
    torch.float16: ("avx512_fp16", "amx_fp16", "fp16_arith"),
}
#: Bytes a weight of a layer takes, with the scales of its groups or its row.
_QUANTIZED_BYTES = {"int8": 1.002, "int4": 0.534}
#: What allocating thousands of experts one by one takes beyond their sum, as measured.
_MANY_SMALL = 1.08
#: The share of free memory that is given away: allocators leave holes, libraries want room to work.
_TAKEN = 0.9


@dataclass(frozen=True, slots=True)
class Placement:
    device: torch.device
    weights: torch.dtype  # as they lie in memory
    compute: torch.dtype  # of activations and products
    quantization: str  # none, int8 or int4
    stored: torch.dtype
    needed: int  # bytes, by arithmetic
    free: int | None  # bytes, before loading
    most: int = 0  # as needed, and all positions and keys and values that were allowed
    positions: int = 0  # that a forward may have
    cache_megabytes: int = 0  # that kept keys and values may take

    @property
    def fits(self) -> bool:
        """Whether it fits into free memory, as far as anybody can say."""
        return self.free is None or self.needed <= self.free

    def as_dict(self) -> dict[str, Any]:
        """Its fields, for answers and records."""
        return {
            "device": str(self.device),
            **self.identity(),
            "weights_dtype": name_of(self.weights),
            "memory_needed": self.needed,
            "memory_most": self.most,
            "memory_free": self.free,
            "positions": self.positions,
            "cache_megabytes": self.cache_megabytes,
        }

    def identity(self) -> dict[str, str]:
        """The fields that decide results.

        Whether weights that were stored in 16 bit lie in memory so or widened does not: `dtype` is
        the precision that their values have either way.
        """
        narrow = min(self.weights, self.stored, key=lambda dtype: dtype.itemsize)
        return {
            "dtype": name_of(narrow),
            "compute_dtype": name_of(self.compute),
            "quantization": exact_name(self.quantization, self.device),
        }

    @property
    def sentence(self) -> str:
        """`cpu, bfloat16, int8; needs 9.8 GB, 15.6 GB with full batches and cache, 20.1 GB are
        free`."""
        weights, compute = name_of(self.weights), name_of(self.compute)
        how = weights if weights == compute else f"{weights} computed in {compute}"
        quantized = "not quantised" if self.quantization == "none" else self.quantization
        free = "" if self.free is None else f", {gigabytes(self.free)} are free"
        most = f", {gigabytes(self.most)} with full batches and cache" if self.most else ""
        tight = self.fits and self.free is not None and self.most > self.free
        room = f": {self.room}" if tight else ""
        return (
            f"{self.device}, {how}, {quantized}; needs {gigabytes(self.needed)}{most}{free}{room}"
        )

    @property
    def room(self) -> str:
        """What of memory is for batches, and what for the cache."""
        cache = gigabytes(self.cache_megabytes * 2**20)
        return f"{self.positions:,} positions at once, and {cache} of kept keys and values"


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
    if not best.fits:
        raise UserError(_too_large(config, checkpoint, best))
    return best


def describe(config: EngineConfig, checkpoint: Any, device: torch.device) -> Placement:
    """The best way to run a checkpoint as asked that fits; where none fits, the smallest."""
    check_available(config.quantization, device)
    free, stored = free_memory(device), stored_dtype(checkpoint)
    ways = []
    for types in ways_to_compute(config.dtype, device, stored):
        held, forward, more = _needed(config, checkpoint, device, *types)
        needed = held + forward
        room = _room(config, checkpoint, None if free is None else free - needed, more)
        how = (device, *types, config.quantization, stored)
        ways.append(Placement(*how, needed, free, needed + sum(more), *room))
    if config.quantization != "none":  # to save memory, so what is left wide is not widened
        ways.reverse()
    return next((way for way in ways if way.fits), min(ways, key=lambda way: way.needed))


def settled(config: EngineConfig, checkpoint: Any, placement: Placement) -> Placement:
    """The same once the model is loaded: with room as what is free then has it.

    On a CPU, where mapped weights still count as free, it stays as it was reckoned.
    """
    device = placement.device
    if device.type == "cuda":
        torch.cuda.empty_cache()
    free = free_memory(device)
    if device.type == "cpu" or free is None:
        return placement
    types = (placement.weights, placement.compute)
    _, forward, more = _needed(config, checkpoint, device, *types)
    positions, cache = _room(config, checkpoint, free - forward, more)
    return replace(placement, positions=positions, cache_megabytes=cache)


def _room(
    config: EngineConfig, checkpoint: Any, spare: int | None, more: tuple[int, int]
) -> tuple[int, int]:
    """Positions of a forward and megabytes of keys and values, as `spare` bytes have room for
    `more` bytes of both."""
    share = 1.0 if spare is None else min(1.0, max(0.0, _TAKEN * spare / max(1, sum(more))))
    least = _least_positions(config, checkpoint)
    positions = least + int(share * (config.max_positions - least))
    return positions, int(share * config.max_cache_megabytes)


def _least_positions(config: EngineConfig, checkpoint: Any) -> int:
    """Those of one row that fills the context."""
    return min(config.max_positions, int(checkpoint.context_length))


def _too_large(config: EngineConfig, checkpoint: Any, tried: Placement) -> str:
    """The error of a model that does not fit as asked, with the options that would make it fit."""
    assert tried.free is not None
    fitting = []
    for name, value in (("dtype", "bfloat16"), ("quantization", "int8"), ("quantization", "int4")):
        try:
            other = describe(config.replaced(**{name: value}), checkpoint, tried.device)
        except UserError:
            continue
        if other.needed < tried.needed and other.fits:
            fitting.append(f"--{name} {value} ({gigabytes(other.needed)})")
    advice = f"these would fit: {', '.join(fitting)}"
    return (
        f"{config.model} needs {gigabytes(tried.needed)} of memory on {tried.device} as asked, "
        f"but {gigabytes(tried.free)} are free; "
        f"{advice if fitting else 'nothing that is offered here would fit'}"
    )


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def stored_dtype(checkpoint: Any) -> torch.dtype:
    """The type of most of the weights. A published config need not name it, and may be wrong."""
    most = next(iter(checkpoint.stored_dtypes), "F32")
    return _STORED.get(most, torch.float32)


def ways_to_compute(
    asked: str, device: torch.device, stored: torch.dtype
) -> list[tuple[torch.dtype, torch.dtype]]:
    """The types of weights and of products to run as asked, the best first.

    A later way only needs less memory for the same result. `auto` computes as the weights are
    stored, where the device can; a GPU before Ampere, which emulates bfloat16, in float16.
    """
    if asked == "auto":
        wanted = torch.float32 if stored == torch.float64 else stored
        if device.type != "cpu" and not is_native(wanted, device):
            wanted = torch.float16
    else:
        wanted = getattr(torch, asked)
    if device.type != "cpu":
        return [(wanted, wanted)]
    compute = wanted if is_native(wanted, device) else torch.float32
    narrow = wanted if asked != "auto" and wanted.itemsize < 4 else stored
    if narrow.itemsize >= compute.itemsize:
        return [(compute, compute)]
    if narrow != stored:  # asked to round the weights: they must be, also where all fits
        return [(narrow, compute)]
    return [(compute, compute), (narrow, compute)]


def is_native(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the device multiplies such numbers at their full speed."""
    if device.type == "cuda" and dtype == torch.bfloat16 and torch.version.hip is None:
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type != "cpu" or dtype not in _NATIVE:
        return True
    return any(torch.cpu.get_capabilities().get(name) for name in _NATIVE[dtype])


def free_memory(device: torch.device) -> int | None:
    """Bytes that are free on a device; None where nobody can say.

    For a CPU it is known on Linux only: the memory that can be had without swapping, if the file
    cache gives way, and within the limit of a container.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    free = None
    with suppress(OSError, StopIteration, ValueError):
        free = _listed("/proc/meminfo", "MemAvailable:") * 1024
        group = Path("/sys/fs/cgroup")  # only a container with a limit has these files
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        used = int((group / "memory.current").read_text(encoding="ascii"))
        cache = _listed(group / "memory.stat", "inactive_file")
        free = min(free, max(0, limit - used + cache))
    return free


def _listed(path: str | Path, name: str) -> int:
    """The number behind a name in one of the kernel's files."""
    lines = map(str.split, Path(path).read_text(encoding="ascii").splitlines())
    return next(int(line[1]) for line in lines if line[0] == name)


def _needed(
    config: EngineConfig,
    checkpoint: Any,
    device: torch.device,
    weights: torch.dtype,
    compute: torch.dtype,
) -> tuple[int, int, tuple[int, int]]:
    """Bytes of the weights, of a forward over the context, and of what may come to it: positions up
    to the limit, kept keys and values. Arithmetic from the headers and the config.

    Embedding and head are not quantised. Quantising needs one weight in float32 beside; experts on
    CUDA are widened for a product, the larger half of a layer's at a time.
    """
    shape, quantized = checkpoint.config, config.quantization != "none"
    ends = shape.vocab_size * shape.hidden_size * (1 if shape.tie_word_embeddings else 2)
    ends = min(ends, checkpoint.parameters)
    inner = int(getattr(shape, "intermediate_size", None) or 4 * shape.hidden_size)
    each = _QUANTIZED_BYTES.get(config.quantization, weights.itemsize)
    beside, experts = 4 * shape.hidden_size * inner, getattr(shape, "num_experts", None)
    if quantized and experts and device.type == "cuda":
        width = 2 * experts * shape.moe_intermediate_size * shape.hidden_size
        beside = max(beside, width * (1 + compute.itemsize))
    elif quantized and experts:
        each *= _MANY_SMALL
    held = int((checkpoint.parameters - ends) * each) + ends * weights.itemsize
    held += beside if quantized else 0
    position = (6 * shape.hidden_size + 3 * inner) * compute.itemsize
    least = _least_positions(config, checkpoint)
    forward = least * position + config.logits_megabytes * 2**20
    more = ((config.max_positions - least) * position, config.max_cache_megabytes * 2**20)
    return held, forward, more


def gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
