"""How much memory a model needs, and how much is free. Both are asked before loading.

A machine that runs out of memory ends this process, or another, without a message.
"""

from pathlib import Path
from typing import Any

import torch

from rho_eos.models.precision import Precision

#: Bytes a weight of a layer takes, with the scales of its groups or its row.
QUANTIZED_BYTES = {"int8": 1.002, "int4": 0.5625}
#: What allocating thousands of experts one by one takes beyond their sum, as measured.
MANY_SMALL = 1.08


def free_memory(device: torch.device) -> int | None:
    """Bytes that are free on a device; None where nobody can say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    return _free_ram()


def _free_ram() -> int | None:
    """What can be had without swapping, where the file cache gives way, and within a container."""
    try:
        free = _listed("/proc/meminfo", "MemAvailable:") * 1024
    except (OSError, StopIteration, ValueError):  # not Linux
        try:
            import psutil  # type: ignore[import-untyped]
        except ModuleNotFoundError:
            return None
        return int(psutil.virtual_memory().available)
    try:
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        used = int((group / "memory.current").read_text(encoding="ascii"))
        cache = _listed(group / "memory.stat", "inactive_file")
    except (OSError, StopIteration, ValueError):  # no container, or one without a limit
        return free
    return min(free, max(0, limit - used + cache))


def _listed(path: str | Path, name: str) -> int:
    """The number that follows a name in a list of the kernel's."""
    lines = map(str.split, Path(path).read_text(encoding="ascii").splitlines())
    return next(int(line[1]) for line in lines if line[0] == name)


def needed_memory(
    checkpoint: Any, precision: Precision, quantization: str, positions: int, logits_bytes: int
) -> int:
    """Bytes for weights and one forward of `positions`: arithmetic from the headers and the config.

    Embedding and head are not quantised. Quantising needs one weight in float32 beside.
    """
    config = checkpoint.config
    ends = config.vocab_size * config.hidden_size * (1 if config.tie_word_embeddings else 2)
    ends = min(ends, checkpoint.parameters)
    layers = checkpoint.parameters - ends
    wide = precision.weights.itemsize
    inner = int(getattr(config, "intermediate_size", None) or 4 * config.hidden_size)
    each = QUANTIZED_BYTES.get(quantization, wide)
    if quantization != "none" and getattr(config, "num_experts", None):
        each *= MANY_SMALL
    weights = int(layers * each) + ends * wide
    beside = 4 * config.hidden_size * inner if quantization != "none" else 0
    activations = positions * (6 * config.hidden_size + 3 * inner) * precision.compute.itemsize
    return weights + beside + activations + logits_bytes


def gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
