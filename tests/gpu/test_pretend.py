"""The pretended GPU itself: what a real one refuses or waits for, it refuses and counts."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from tests.gpu.pretend import OnGPU, PretendGPU, pretend_gpu


def there(gpu: PretendGPU, *shape: int) -> torch.Tensor:
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).view(shape).to(gpu.device)


def test_what_it_computes_is_real_and_counted() -> None:
    with pretend_gpu() as gpu:
        x = there(gpu, 4, 8)
        gpu.new_ledger()
        y = (x.transpose(0, 1) @ x).add_(1)[2:4]
        assert y.device == gpu.device and isinstance(y, OnGPU)
        assert [(each.name, each.flops) for each in gpu.ledger.kernels] == [
            ("mm", 2 * 8 * 8 * 4),
            ("add_", 0),
        ]
        assert gpu.ledger.kernels[0].bytes == 4 * (32 + 32 + 64)
        assert gpu.ledger.syncs == 0
        found = y.cpu()
        assert gpu.ledger.syncs == 1
    real = torch.arange(1.0, 33).view(4, 8)
    assert torch.equal(found, (real.T @ real + 1)[2:4])


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.any()),
        lambda x: x.tolist(),
        lambda x: x[x > 3],
        lambda x: x.nonzero(),
        lambda x: x[torch.tensor([1])],  # an index that lies on the host is copied
        lambda x: torch.tensor([1.0], device=x.device),
    ],
)
def test_what_waits_is_counted(wait: object) -> None:
    with pretend_gpu() as gpu:
        x = there(gpu, 4, 8)
        gpu.new_ledger()
        wait(x)  # type: ignore[operator]
        assert gpu.ledger.syncs == 1, gpu.ledger.by_line()


def test_what_devices_refuse_is_refused() -> None:
    with pretend_gpu() as gpu:
        with pytest.raises(RuntimeError, match="same device"):
            there(gpu, 4, 8) + torch.ones(8)
        with pytest.raises(TypeError, match="numpy"):
            there(gpu, 4).numpy()
        gpu.largest = 100
        with pytest.raises(torch.OutOfMemoryError):
            torch.zeros(26, device=gpu.device)
    with pretend_gpu("mps") as gpu:
        with pytest.raises(TypeError, match="float64"):
            torch.sum(there(gpu, 4).double())
        with pytest.raises(RuntimeError, match="outlives"):
            torch.ones(4).to(gpu.device, non_blocking=True)
        strided = there(gpu, 1, 4, 2, 8).transpose(1, 2)
        with torch.inference_mode(), pytest.raises(RuntimeError, match="strided"):
            scaled_dot_product_attention(strided, strided, strided)
        with pytest.raises(NotImplementedError, match="MPS"):
            torch.linalg.eig(there(gpu, 2, 2))
