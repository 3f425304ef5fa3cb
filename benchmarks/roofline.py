"""`python -m benchmarks.roofline`: what a step of an 8B model takes on GPUs, by arithmetic.

Nothing here is measured. On the pretended GPU of `tests/gpu` the engine runs a step of LLaDA-8B's
shape, of which only shapes exist, and every kernel is counted with the bytes it moves and the
multiplications it makes. A kernel takes as long as the larger of the two needs, a step as long as
the larger of all its kernels and of launching them one by one. What the device gives is in
`DEVICES`, what a program gets of it in `OF_MEMORY` and `OF_PRODUCTS`, which are assumptions.

    python -m benchmarks.roofline                  # a table for each device
    python -m benchmarks.roofline --launch 4       # as if a launch took 4 microseconds
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from rho_eos.decoding.blocks import Blocks
from rho_eos.engine.runner import ModelRunner
from rho_eos.models.families.llada import LLaDAConfig
from rho_eos.models.layer import join_products
from rho_eos.models.layers.llada import LLaDAForMaskedLM
from rho_eos.models.quantize import quantize
from tests.gpu.ledger import Kernel, Ledger
from tests.gpu.pretend import on_gpu, pretend_gpu
from tests.gpu.steps import SPECIAL, ledgers, rows

LAYERS = 32
COUNTED = 2  # layers that are run; the others are like the second


@dataclass(frozen=True, slots=True)
class Device:
    """What its maker says, without sparsity."""

    name: str
    bandwidth: float  # bytes a second
    half: float  # operations a second in bfloat16
    int8: float
    source: str


DEVICES = (
    Device("A100 80 GB SXM", 2.039e12, 312e12, 624e12, "NVIDIA A100 datasheet"),
    Device("H100 80 GB SXM", 3.35e12, 989e12, 1979e12, "NVIDIA H100 datasheet, half of sparse"),
    Device("RTX 4090", 1.008e12, 165e12, 661e12, "NVIDIA Ada whitepaper, appendix A"),
    Device("M4 Max, 40 cores", 0.546e12, 17e12, 17e12, "Apple; products estimated"),
)
OF_MEMORY, OF_PRODUCTS = 0.8, 0.6  # what good kernels reach
LAUNCH = 6.0  # microseconds of the host for a kernel, with Python and torch around it

PROMPT, CANVAS, BLOCK = 40, 256, 32
FIXED = {"policy": "fixed", "initial_length": CANVAS, "max_new_tokens": CANVAS, "steps": CANVAS}
WAYS: dict[str, dict[str, Any]] = {
    "exact": {**FIXED, "early_stop": False},
    "window": {**FIXED, "early_stop": False, "cache": "window", "block_length": BLOCK},
    "blocks": {"policy": "blocks", "cache": "blocks", "max_new_tokens": CANVAS, "threshold": 1.0},
}


def shape_of_8b(layers: int) -> LLaDAForMaskedLM:
    sizes = {"d_model": 4096, "n_heads": 32, "mlp_hidden_size": 12288, "vocab_size": 126464}
    with torch.device("meta"):
        model = LLaDAForMaskedLM(LLaDAConfig(n_layers=layers, **sizes))
    return model.to(torch.bfloat16).eval()


def step_of(way: str, batch: int, int8: bool, layers: int) -> Ledger:
    """The third step, when what is kept is there and has been shared."""
    with pretend_gpu(memory=40 * 10**9) as gpu:
        gpu.shapes_only = True
        model = on_gpu(shape_of_8b(layers))
        if int8:
            quantize(model, "int8", gpu.device, torch.bfloat16)
        join_products(model)
        runner = ModelRunner(model, SPECIAL, cache_megabytes=16384)
        blocks = Blocks(BLOCK) if way == "blocks" else None
        return ledgers(gpu, runner, rows(batch, blocks=blocks, **WAYS[way]), 3)[2]


def whole_step(way: str, batch: int, int8: bool) -> list[Kernel]:
    """The kernels of a step of all layers, from steps of one and of two."""
    few, more = (step_of(way, batch, int8, layers).kernels for layers in (COUNTED - 1, COUNTED))
    at = next((n for n, (a, b) in enumerate(zip(few, more, strict=False)) if a != b), len(few))
    extra = len(more) - len(few)
    return [*more[:at], *more[at : at + extra] * (LAYERS - COUNTED + 1), *more[at + extra :]]


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds, and what they go to."""

    launches: int
    host: float
    memory: float
    products: float
    device: float

    @classmethod
    def of(cls, kernels: list[Kernel], device: Device, launch: float) -> "Estimate":
        spent = [0.0, 0.0, 0.0]
        for each in kernels:
            fast = device.int8 if each.name == "_int_mm" else device.half
            memory = each.bytes / (device.bandwidth * OF_MEMORY)
            products = each.flops / (fast * OF_PRODUCTS)
            spent[0 if memory >= products else 1] += max(memory, products)
            spent[2] += max(memory, products)
        return cls(len(kernels), len(kernels) * launch * 1e-6, *spent)

    @property
    def step(self) -> float:
        return max(self.host, self.device)

    @property
    def bound(self) -> str:
        if self.host > self.device:
            return "launches"
        return "memory" if self.memory >= self.products else "products"

    @property
    def overhead(self) -> float:
        """The share of the step in which the device has nothing to do."""
        return 1 - self.device / self.step


def cases(batches: list[int]) -> Iterator[tuple[str, int, bool]]:
    for int8 in (False, True):
        for way in WAYS:
            for batch in batches:
                yield way, batch, int8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launch", type=float, default=LAUNCH, help="microseconds of a launch")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32], help="rows in a step")
    given = parser.parse_args()
    found = {case: whole_step(*case) for case in cases(given.batch)}
    console = Console(width=110)
    for device in DEVICES:
        table = Table(title=f"{device.name} ({device.source}), arithmetic, not measured")
        for name in ("step", "rows", "weights", "kernels", "launching", "device", "time"):
            table.add_column(name, justify="left" if name == "step" else "right")
        table.add_column("bound by")
        table.add_column("idle", justify="right")
        for (way, batch, int8), kernels in found.items():
            if int8 and device.name.startswith("M4"):
                continue  # there is no quantisation on MPS
            e = Estimate.of(kernels, device, given.launch)
            times = (f"{1000 * seconds:,.1f} ms" for seconds in (e.host, e.device, e.step))
            weights = "int8" if int8 else "bfloat16"
            counts = (way, str(batch), weights, f"{e.launches:,}")
            table.add_row(*counts, *times, e.bound, f"{e.overhead:.0%}")
        console.print(table)


if __name__ == "__main__":
    main()
