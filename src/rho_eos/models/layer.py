"""A decoder layer in few kernels: what a GPU spends a small step on is launching them.

The weights stay where transformers' layers have them and keep their names. Only how they are used
is ours: products that share their input are one product, queries and keys are rotated together, and
a product is added to what it belongs to where it is made.
"""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import linear, pad, rms_norm
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import eager_attention_forward

from rho_eos.models.quantize import QuantizedLinear

#: transformers' layers whose parts mean what we take them for.
_ATTENTION = ("Llama", "Qwen2", "Qwen3", "Qwen3Moe", "Glm4Moe")
_MLP = _ATTENTION


class Joined:
    """Linear layers with one input, as one product: their weights become rows of a common one.

    Who replaces or moves one of them (an adapter, another device) gets separate products again.
    """

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        self.layers: tuple[Any, ...] = tuple(layers)
        self.sizes = [layer.out_features for layer in layers]
        self.weight, self.bias = (self._join(name) for name in ("weight", "bias"))
        self.addresses = [self._address(layer) for layer in layers]

    def fits(self, *layers: nn.Module) -> bool:
        """Whether these are still the layers that were joined, and inference is what is wanted."""
        if torch.is_grad_enabled() and any(each.weight.requires_grad for each in self.layers):
            return False
        same = all(a is b for a, b in zip(layers, self.layers, strict=True))
        return same and self.addresses == [self._address(layer) for layer in self.layers]

    def __call__(self, input: torch.Tensor) -> torch.Tensor:
        assert self.weight is not None
        return linear(input, self.weight, self.bias)

    def _join(self, name: str) -> torch.Tensor | None:
        parts = [getattr(layer, name) for layer in self.layers]
        if parts[0] is None:
            return None
        whole = torch.cat([part.detach() for part in parts])
        for layer, own, old in zip(self.layers, whole.split(self.sizes), parts, strict=True):
            setattr(layer, name, nn.Parameter(own, requires_grad=old.requires_grad))
        return whole

    @staticmethod
    def _address(layer: Any) -> tuple[int, int]:
        return layer.weight.data_ptr(), 0 if layer.bias is None else layer.bias.data_ptr()


class JoinedBytes(Joined):
    """The same of quantised layers: their input is rounded to bytes once for all of them."""

    def __init__(self, layers: Sequence[QuantizedLinear]) -> None:
        self.layers = tuple(layers)
        self.sizes = [layer.out_features for layer in layers]
        self.whole = _side_by_side(layers)
        self.addresses = [self._address(layer) for layer in layers]

    def __call__(self, input: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.whole(input)
        return output


def _side_by_side(layers: Sequence[QuantizedLinear]) -> QuantizedLinear:
    """One layer with the outputs of several, of which each becomes a view."""
    whole = copy(layers[0])
    whole._parameters, whole._buffers = {}, {}
    whole.out_features = sum(layer.out_features for layer in layers)
    for name, old in [*layers[0].named_parameters(), *layers[0]._buffers.items()]:
        if old is None:
            whole.register_buffer(name, None)
            continue
        # Outputs are the first of a weight's dimensions in memory, and the second where it is used.
        parts = [getattr(layer, name) for layer in layers]
        outputs = 0 if old.ndim < 2 else 1
        turned = outputs == 1 and old.ndim == 2
        together = torch.cat(
            [part.t() if turned else part for part in parts], 0 if turned else outputs
        )
        together = together.t() if turned else together
        sizes = [part.shape[outputs] for part in parts]
        views = together.split(sizes, outputs)
        for module, kept in zip((whole, *layers), (together, *views), strict=True):
            if isinstance(old, nn.Parameter):
                setattr(module, name, nn.Parameter(kept, requires_grad=False))
            else:
                module.register_buffer(name, kept)
    return whole


def join_products(model: nn.Module) -> None:
    """Have layers that share their input multiplied together from now on."""
    for module in model.modules():
        if isinstance(module, Attention):
            module.joined = _joined(module.q_proj, module.k_proj, module.v_proj)
        elif _is_mlp(type(module)):
            module.__dict__["joined"] = _joined(module.gate_proj, module.up_proj)


def _joined(*layers: Any) -> Joined | None:
    if all(isinstance(layer, QuantizedLinear) and layer.joins(layers[0]) for layer in layers):
        return JoinedBytes(layers)
    plain = all(type(layer) is nn.Linear for layer in layers)
    alike = plain and len({(layer.bias is None, layer.weight.dtype) for layer in layers}) == 1
    return Joined(layers) if alike else None


class Attention(nn.Module):
    """Mixed into transformers' attention modules, of which it changes no weight and no name.

    It rotates in the type of the sines and cosines that it is given.
    """

    joined: Joined | None = None
    config: Any
    q_proj: nn.Linear
    k_proj: nn.Linear
    v_proj: nn.Linear
    o_proj: nn.Linear
    head_dim: int
    scaling: float
    attention_dropout: float

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: "Rotation",
        attention_mask: torch.Tensor | None = None,
        residual: torch.Tensor | None = None,
        read_at: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(batch, length, hidden), added to `residual` where there is one; with `read_at`, these
        positions of it only."""
        heads = self._heads(hidden_states, position_embeddings)
        attend: Callable[..., Any] = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        attended, weights = attend(
            self,
            *(each.transpose(1, 2) for each in heads),
            attention_mask,
            dropout=self.attention_dropout if self.training else 0.0,
            scaling=self.scaling,
            sliding_window=getattr(self, "sliding_window", None),
            **kwargs,
        )
        attended = attended.reshape(*hidden_states.shape[:-1], -1)
        if read_at is not None:
            attended = attended[:, read_at]
        if residual is None:
            return self.o_proj(attended), weights
        return added(self.o_proj, attended, residual), weights

    def _heads(self, hidden: torch.Tensor, rotation: "Rotation") -> Sequence[torch.Tensor]:
        """Queries, keys and values, (batch, length, heads, head_dim)."""
        shape = (*hidden.shape[:-1], -1, self.head_dim)
        norms: Any = getattr(self, "q_norm", None), getattr(self, "k_norm", None)
        joined = self.joined
        if joined is None or not joined.fits(self.q_proj, self.k_proj, self.v_proj):
            query, key, value = (
                projection(hidden).view(shape)
                for projection in (self.q_proj, self.k_proj, self.v_proj)
            )
            query, key = (
                rotation.turn(each if norm is None else norm(each))
                for each, norm in zip((query, key), norms, strict=True)
            )
            return query, key, value
        every = joined(hidden).view(shape)
        queries, keys, _ = (size // self.head_dim for size in joined.sizes)
        both = every[..., : queries + keys, :]
        if isinstance(norms[0], nn.RMSNorm) and isinstance(norms[1], nn.RMSNorm):
            # What is normalised lies end to end, so values take part and are left out again.
            normed = rms_norm(every, (self.head_dim,), eps=norms[0].eps)
            both = normed[..., : queries + keys, :] * self._norm_weights(queries, keys)
        query, key = rotation.turn(both).split((queries, keys), dim=-2)
        return query, key, every[..., queries + keys :, :]

    def _norm_weights(self, queries: int, keys: int) -> torch.Tensor:
        """(heads, head_dim), made again when somebody has changed one of the two."""
        norms: Any = self.q_norm, self.k_norm
        own = [norm.weight for norm in norms]
        state = [(each.data_ptr(), each._version) for each in own]
        known = self.__dict__.get("_norms")
        if known is None or known[0] != state:
            both = [w.expand(n, -1) for w, n in zip(own, (queries, keys), strict=True)]
            known = self.__dict__["_norms"] = state, torch.cat(both)
        return known[1]


def with_our_attention(kind: Any) -> type[Any] | None:
    """The class of attention modules with ours mixed in; None: it is none that we know."""
    if not _is_known(kind, [f"{name}Attention" for name in _ATTENTION]):
        return None
    return type(kind.__name__, (Attention, kind), {"__module__": kind.__module__})


def _is_mlp(kind: Any) -> bool:
    return _is_known(kind, [f"{name}MLP" for name in _MLP])


def _is_known(kind: type[Any], names: Sequence[str]) -> bool:
    return kind.__module__.startswith("transformers.models.") and kind.__name__ in names


class Rotation(NamedTuple):
    """How heads are turned by their position, the same in all layers."""

    cos: torch.Tensor  # (batch, length, 1, head_dim)
    sin: torch.Tensor  # likewise; that of the first half with its sign
    half: int  # of the numbers that are turned, which need not be all of a head

    @classmethod
    def of(cls, cos: torch.Tensor, sin: torch.Tensor, width: int) -> "Rotation":
        """From transformers' cosines and sines, for heads of this width."""
        half, rest = cos.shape[-1] // 2, (0, width - cos.shape[-1])
        signed = torch.cat((-sin[..., :half], sin[..., half:]), -1)
        if rest[1]:
            cos, signed = pad(cos, rest, value=1.0), pad(signed, rest)
        return cls(cos.unsqueeze(-2), signed.unsqueeze(-2), half)

    def turn(self, x: torch.Tensor) -> torch.Tensor:
        """(…, heads, head_dim), in the type of the cosines and rounded once."""
        half = self.half
        parts = (x[..., half : 2 * half], x[..., :half], x[..., 2 * half :])
        turned = torch.cat(parts if 2 * half < x.shape[-1] else parts[:2], -1)
        if x.dtype == self.cos.dtype:
            return torch.addcmul(x * self.cos, turned, self.sin)
        return (x * self.cos + turned * self.sin).to(x.dtype)


def added(layer: nn.Module, input: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    """`residual` + layer(input); on a GPU in one kernel, which uses the residual up."""
    plain = type(layer) is nn.Linear and layer.bias is None and layer.weight.dtype == input.dtype
    if not plain or input.device.type == "cpu" or torch.is_grad_enabled():
        return residual + layer(input)
    weight: Any = layer.weight
    residual.view(-1, residual.shape[-1]).addmm_(input.flatten(0, -2), weight.t())
    return residual


def run_layer(
    layer: Any, hidden: torch.Tensor, read_at: torch.Tensor | None, **kwargs: Any
) -> torch.Tensor:
    """A whole layer for packed rows; with `read_at` only these positions are returned, and behind
    attention nothing but them is computed."""
    attention = layer.self_attn
    residual = hidden if read_at is None else hidden[:, read_at]
    normed = layer.input_layernorm(hidden)
    if isinstance(attention, Attention):
        hidden, _ = attention(normed, residual=residual, read_at=read_at, **kwargs)
    else:
        attended, _ = attention(hidden_states=normed, **kwargs)
        hidden = residual + (attended if read_at is None else attended[:, read_at])
    normed, mlp = layer.post_attention_layernorm(hidden), layer.mlp
    if not _is_mlp(type(mlp)):
        return hidden + mlp(normed)
    joined = mlp.__dict__.get("joined")
    if joined is not None and joined.fits(mlp.gate_proj, mlp.up_proj):
        gate, up = joined(normed).chunk(2, dim=-1)
    else:
        gate, up = mlp.gate_proj(normed), mlp.up_proj(normed)
    return added(mlp.down_proj, mlp.act_fn(gate) * up, hidden)
