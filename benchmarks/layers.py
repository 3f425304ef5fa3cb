"""One layer of LLaDA-8B's shape in each format, on this CPU: seconds as ratios to int8.

    python -m benchmarks.layers                # a minute
    python -m benchmarks.layers --threads 2

The formats take turns within one run, so what other processes do meets all of them, and seconds are
those that cores worked (waiting for another thread is not work: OMP_WAIT_POLICY is PASSIVE).
"""

import argparse
import copy
import os
import time
from statistics import median

os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # before torch reads it

import torch

from rho_eos.models.families.llada import LLaDAConfig
from rho_eos.models.layers.llada import LLaDAForMaskedLM
from rho_eos.models.quantize import quantize

CPU = torch.device("cpu")


def layer_of_llada(layers: int) -> LLaDAForMaskedLM:
    config = LLaDAConfig(
        d_model=4096, n_layers=layers, n_heads=32, mlp_hidden_size=12_288, vocab_size=64
    )
    with torch.device("meta"):
        model = LLaDAForMaskedLM(config)
    return model.to_empty(device="cpu").bfloat16().eval().requires_grad_(False)


def formats(layers: int) -> dict[str, torch.nn.Module]:
    plain = layer_of_llada(layers)
    for weight in plain.parameters():
        weight.normal_(0, 0.02) if weight.ndim == 2 else weight.fill_(1)
    plain.model.rotary_emb.__init__(plain.config)  # what `meta` left out
    found = {"bfloat16": plain}
    for kind in ("int8", "int4"):
        found[kind] = copy.deepcopy(plain)
        quantize(found[kind], kind, CPU, torch.bfloat16)
    return found


def size(model: torch.nn.Module) -> float:
    kept = [*model.model.layers.parameters(), *model.model.layers.buffers()]
    return sum(each.nbytes for each in kept) / 1e6


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--positions", default="33,81,273")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    clock = time.process_time
    models = formats(given.layers)
    print("MB", {kind: round(size(model)) for kind, model in models.items()})
    for count in map(int, given.positions.split(",")):
        ids = torch.arange(count)[None] % 64
        seconds: dict[str, list[float]] = {kind: [] for kind in models}
        for _ in range(given.turns + 1):  # the first turn only warms up
            for kind, model in models.items():
                started = clock()
                model.model(ids)
                seconds[kind].append(clock() - started)
        each = {kind: median(own[1:]) for kind, own in seconds.items()}
        ratios = "  ".join(f"{kind} {each[kind] / each['int8']:.2f}" for kind in models)
        print(f"{count:4} positions  {ratios}  (int8 {each['int8'] * 1e3:.0f} ms)", flush=True)


if __name__ == "__main__":
    main()
