"""How fast a device reads, launches and multiplies; each measured for a fraction of a second."""

import time
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import linear

from rho_eos.base.errors import UserError
from rho_eos.models.quantize import KINDS, check_available

POSITIONS = (81, 273)
WIDTH = 4096  # of a model of 8B
_LAUNCHES = 200
_SECONDS = 0.3  # for one of them


def measure(device: torch.device, half: torch.dtype) -> dict[str, float]:
    """Gigabytes a second, microseconds, and milliseconds of products of 4096 x 4096."""
    size = 2**28 if device.type == "cuda" else 2**26
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    found = {"copied, GB/s": 2e-9 * size / best(lambda: target.copy_(source), device)}
    tiny = torch.zeros(8, device=device)

    def launches() -> None:
        for _ in range(_LAUNCHES):
            tiny.add_(1)

    found["a kernel that does nothing, us"] = 1e6 * best(launches, device) / _LAUNCHES
    layer = nn.Linear(WIDTH, WIDTH, bias=False, device=device, dtype=half).requires_grad_(False)
    layers: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {str(half)[6:]: layer}
    if device.type == "cpu":
        wide = layer.weight.float()
        layers["float32"] = lambda input: linear(input.float(), wide)
    for kind, make in KINDS.items():
        try:
            check_available(kind, device)
        except UserError:
            continue
        layers[kind] = make(layer, half)
    for count in POSITIONS:
        inputs = torch.ones(count, WIDTH, device=device, dtype=half)
        for name, each in layers.items():
            seconds = best(lambda each=each, inputs=inputs: each(inputs), device)  # type: ignore[misc]
            found[f"a product of {count} positions in {name}, ms"] = 1e3 * seconds
    return found


@torch.inference_mode()
def best(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of the quickest of several runs."""
    work()
    quickest, begun = float("inf"), time.perf_counter()
    while time.perf_counter() - begun < _SECONDS or quickest == float("inf"):
        wait_for(device)
        started = time.perf_counter()
        work()
        wait_for(device)
        quickest = min(quickest, time.perf_counter() - started)
    return quickest


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
