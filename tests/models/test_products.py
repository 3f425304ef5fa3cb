"""Large products by oneDNN give the numbers of torch's, and are used only where they are faster."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from rho_eos.models import products
from rho_eos.models.products import OneDNNLinear, choose_products
from rho_eos.models.widening import WideLinear, widen


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    products._faster.cache_clear()
    yield
    products._faster.cache_clear()


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1024, 1100), nn.Linear(1100, 1024, bias=False), nn.Linear(8, 8))


def quick(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """oneDNN takes so long where the other way takes 1 s."""
    way = products.by_onednn
    monkeypatch.setattr(products, "_seconds", lambda each, *_: seconds if each is way else 1.0)


@pytest.mark.parametrize("shape", [(3, 1024), (1, 90, 1024)])
def test_it_gives_the_same_numbers(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]) -> None:
    quick(monkeypatch, 0.5)
    inputs, layers = torch.randn(shape), model()[:2]
    with torch.inference_mode():
        wanted = layers(inputs)
        assert choose_products(layers) == 2
        torch.testing.assert_close(layers(inputs), wanted, rtol=1e-4, atol=1e-5)


def test_only_large_weights_and_only_where_it_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch, 0.5)
    chosen = model()
    assert choose_products(chosen) == 2 and type(chosen[2]) is nn.Linear
    products._faster.cache_clear()
    quick(monkeypatch, 0.95)
    assert choose_products(model()) == 0


def test_where_it_is_missing_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> torch.Tensor:
        raise AttributeError("mkldnn has no _linear_pointwise")

    monkeypatch.setattr(products, "by_onednn", missing)
    assert choose_products(model()) == 0


def test_it_can_still_be_trained_and_follows_its_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch, 0.5)
    layer = model()[:1]
    choose_products(layer)
    inputs = torch.randn(2, 1024)
    layer(inputs).sum().backward()
    assert isinstance(layer[0], OneDNNLinear) and layer[0].weight.grad is not None
    with torch.no_grad():
        layer[0].weight.zero_()
        assert torch.equal(layer(inputs), layer[0].bias.expand(2, -1))


def test_widened_weights_are_multiplied_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch, 0.5)
    layers = nn.Sequential(nn.Linear(1024, 1100, dtype=torch.bfloat16)).requires_grad_(False)
    widen(layers, torch.float32)
    assert isinstance(layers[0], WideLinear)
    inputs = torch.randn(5, 1024)
    with torch.inference_mode():
        wanted = layers(inputs)
        assert choose_products(layers) == 1 and layers[0].product is products.by_onednn
        torch.testing.assert_close(layers(inputs), wanted, rtol=1e-4, atol=1e-5)
