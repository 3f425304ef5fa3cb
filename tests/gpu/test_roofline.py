"""The arithmetic of `benchmarks.roofline`: what it counts is what 8B parameters must cost."""

import pytest

from benchmarks.roofline import DEVICES, LAYERS, Estimate, shape_of_8b, whole_step


@pytest.mark.parametrize("way", ["window", "blocks"])
def test_a_small_step_reads_every_weight_once(way: str) -> None:
    kernels = whole_step(way, 1, int8=False)
    layer = 4 * 4096 * 4096 + 3 * 4096 * 12288
    head = 4096 * 126464
    assert len(shape_of_8b(1).lm_head.weight) == 126464
    read = sum(each.bytes for each in kernels if each.name in ("mm", "addmm_"))
    assert 1.0 < read / (2 * (LAYERS * layer + head)) < 1.05  # activations are the rest
    a100 = Estimate.of(kernels, DEVICES[0], launch=6.0)
    # 15 GB at four fifths of 2 TB/s, and 17 kernels a layer at 6 microseconds.
    assert 0.009 < a100.device < 0.011 and 0.003 < a100.host < 0.004 and a100.bound == "memory"
    slow = Estimate.of(kernels, DEVICES[0], launch=60.0)
    assert slow.bound == "launches" and slow.step == slow.host and 0.6 < slow.overhead < 0.8


def test_an_exact_step_multiplies_every_weight_at_every_position() -> None:
    rows = 8
    kernels = whole_step("exact", rows, int8=False)
    flops = sum(each.flops for each in kernels)
    positions = sum(256 + 40 - k for k in range(rows))
    layers = 2 * positions * LAYERS * (4 * 4096 * 4096 + 3 * 4096 * 12288)
    assert 1.0 < flops / layers < 1.2  # attention and the head are the rest
