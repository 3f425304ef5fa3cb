"""A head in oneDNN's order gives the same logits, and is made only where it pays."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from rho_eos.engine.head import projection

CPU = torch.device("cpu")


def head(dtype: torch.dtype = torch.float32, bias: bool = False) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(48, 3001, bias=bias).to(dtype).requires_grad_(False)


@given(rows=st.integers(0, 70), bias=st.booleans())
def test_the_logits_are_the_heads_and_a_rows_do_not_depend_on_the_others(
    rows: int, bias: bool
) -> None:
    plain = head(bias=bias)
    project = projection(plain, CPU, weights_of_layers=0)
    hidden = torch.randn(rows, 48)
    expected = hidden.double() @ plain.weight.double().T
    if bias:
        expected += plain.bias.double()
    together = project(hidden)
    torch.testing.assert_close(together.double(), expected, atol=1e-5, rtol=1e-5)
    if rows:
        torch.testing.assert_close(project(hidden[:1]), together[:1], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    ("plain", "layers"),
    [
        pytest.param(head(), 48 * 3001, id="the layers outweigh it"),
        pytest.param(head(torch.bfloat16), 0, id="16 bit"),
        pytest.param(nn.Identity(), 0, id="another kind of head"),
    ],
)
def test_other_heads_stay_as_they_are(plain: nn.Module, layers: int) -> None:
    assert projection(plain, CPU, layers) is plain


def test_a_build_of_torch_without_the_order_uses_the_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    plain = head()
    assert projection(plain, CPU, 0) is plain


def test_here_a_large_head_is_reordered() -> None:
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this build of torch has no oneDNN")
    plain = head()
    assert projection(plain, CPU, 0) is not plain


def test_a_weight_that_is_trained_is_the_one_that_is_used() -> None:
    plain = head()
    project = projection(plain, CPU, 0)
    hidden = torch.randn(5, 48)
    before = project(hidden)
    with torch.no_grad():
        plain.weight.add_(torch.randn_like(plain.weight))
    assert not torch.allclose(project(hidden), before, atol=0.1)
    torch.testing.assert_close(project(hidden), plain(hidden), atol=1e-5, rtol=1e-5)
