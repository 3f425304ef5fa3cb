"""The page that is posted in an issue: what this machine is, what works on it, how fast it is."""

import os
import platform
import time
from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
import transformers

import rho_eos
from rho_eos.doctor import parity
from rho_eos.doctor.measures import POSITIONS, measure, wait_for
from rho_eos.models.attention import wants_varlen_kernel
from rho_eos.models.placement import free_memory, gigabytes, is_native
from rho_eos.models.quantize import sums_exactly

#: Seconds after which nothing new is begun.
MOST_SECONDS = 60.0
_WEIGHTS_8B = 16e9  # bytes in 16 bit
_KERNELS_8B = 1000  # that one forward of it launches, about


def examine(device: torch.device, seconds: float = MOST_SECONDS) -> dict[str, Any]:
    """Everything that can be asked of a device in a minute, as plain data."""
    begun = time.perf_counter()
    half = parity.half_of(device)
    here = kernels(device, half)
    measured = measure(device, half)
    checks, left_out = [], 0
    for each in chain(parity.tokens(device), parity.families(device)):
        checks.append({"name": each.name, "passed": each.passed, "found": each.found})
        if time.perf_counter() - begun > seconds:
            left_out = 1
            break
    return {
        "machine": machine(device),
        "kernels": here,
        "checks": checks,
        "complete": not left_out,
        "measured": {name: float(f"{value:.3g}") for name, value in measured.items()},
        "slow": [*slow(device, here, measured)],
        "passed": all(check["passed"] is not False for check in checks),
        "seconds": round(time.perf_counter() - begun, 1),
    }


def machine(device: torch.device) -> dict[str, Any]:
    free = free_memory(device)
    found = {
        "rho-eos": rho_eos.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": str(device),
        "free memory": None if free is None else gigabytes(free),
        "cores": f"{os.cpu_count()}, of which torch uses {torch.get_num_threads()}",
    }
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        found |= {"gpu": torch.cuda.get_device_name(device), "capability": f"{major}.{minor}"}
        found |= {"cuda": torch.version.cuda, "rocm": torch.version.hip}
    else:
        able = [name for name, has in torch.cpu.get_capabilities().items() if has is True]
        found |= {"cpu": torch.backends.cpu.get_cpu_capability(), "instructions": " ".join(able)}
    return {name: value for name, value in found.items() if value is not None}


def kernels(device: torch.device, half: torch.dtype) -> dict[str, bool]:
    """What forwards would like to use, and whether it is there."""
    found = {f"products in {str(half)[6:]}": is_native(half, device)}
    if device.type == "cpu":
        found["sums of bytes in 32 bit (VNNI)"] = sums_exactly()
        found["oneDNN"] = torch.backends.mkldnn.is_available()
        return found
    found["attention of all rows in one call"] = wants_varlen_kernel(device, half)
    if device.type == "cuda":
        capability = torch.cuda.get_device_capability(device)
        found["products in bfloat16"] = is_native(torch.bfloat16, device)
        found["products of bytes"] = bool(torch.version.hip) or capability >= (7, 5)
        found["grouped products of experts"] = capability >= (8, 0)
        found["CUDA graphs"] = _captures(device)
    return found


def _captures(device: torch.device) -> bool:
    """One step captured and replayed."""
    try:
        held = torch.ones(8, device=device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            held.mul_(2)
        graph.replay()
        wait_for(device)
        return bool(held.sum().item() == 16)  # a captured step has not run, the replayed one has
    except Exception:  # of the driver, of a build without CUDA
        return False


def slow(device: torch.device, here: dict[str, bool], measured: dict[str, float]) -> Iterator[str]:
    """What takes long here, and why."""
    if device.type == "cpu":
        if not here["products in bfloat16"]:
            yield (
                "Models stored in 16 bit are computed in float32: this CPU does not multiply "
                "16-bit numbers itself. int8 is several times faster."
            )
        if not here["sums of bytes in 32 bit (VNNI)"]:
            yield "Bytes of weights have 7 bits: this CPU has no VNNI, so its sums saturate."
        yield (
            "An answer of a model of 8B takes minutes: a CPU computes a forward in seconds, and "
            "an answer has dozens."
        )
    elif device.type == "mps":
        yield "Each row is an attention call of its own, and there is no quantisation."
    else:
        if not here["products in bfloat16"]:
            yield "bfloat16 is emulated before Ampere; auto takes float16."
        if not here["attention of all rows in one call"]:
            yield "Each row is an attention call of its own: one for all needs CUDA and Ampere."
        if not here["grouped products of experts"]:
            yield "Models with experts wait for the device in every layer: grouping needs Ampere."
    if device.type != "cpu":
        launching = _KERNELS_8B * measured["a kernel that does nothing, us"] / 1e3
        reading = 1e3 * _WEIGHTS_8B / (measured["copied, GB/s"] * 1e9)
        bound = "launches" if launching > reading else "memory"
        yield (
            f"One row of a model of 8B in 16 bit is bound by {bound}: about {_KERNELS_8B:,} "
            f"launches take {launching:.0f} ms, to read its weights takes {reading:.0f} ms."
        )
    for count in POSITIONS:
        plain = measured.get(f"a product of {count} positions in {_half(measured)}, ms")
        for kind in ("int8", "int4"):
            own = measured.get(f"a product of {count} positions in {kind}, ms")
            if own and plain and own > 1.3 * plain:
                yield (
                    f"{kind} saves memory, not time: a product of {count} positions takes "
                    f"{own / plain:.1f} times as long as in {_half(measured)}."
                )


def _half(measured: dict[str, float]) -> str:
    return next(each for each in ("bfloat16", "float16") if any(each in name for name in measured))


def as_text(page: dict[str, Any]) -> str:
    """For people, and for an issue."""
    lines = [f"{name:<14}{value}" for name, value in page["machine"].items()]
    lines += ["", "kernels"]
    lines += [f"  {'yes' if has else 'no ':<4}{name}" for name, has in page["kernels"].items()]
    lines += ["", "measured"]
    lines += [f"  {value:>9,.4g}  {name}" for name, value in page["measured"].items()]
    lines += ["", "against a CPU in float32"]
    said = {True: "good", False: "BAD ", None: "  - "}
    lines += [f"  {said[c['passed']]}  {c['name']}: {c['found']}" for c in page["checks"]]
    if not page["complete"]:
        lines.append("  the rest was left out for want of time")
    lines += ["", "slow here", *(f"  {each}" for each in page["slow"] or ["nothing that is known"])]
    verdict = (
        "Nothing is wrong." if page["passed"] else "Something is wrong: please post this page."
    )
    return "\n".join([*lines, "", f"{verdict} ({page['seconds']} s)"])
