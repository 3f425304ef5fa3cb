"""Decoding with kept keys and values, as plainly as it can be written.

A transformer in LLaDA's form, written out; it keeps a list with one entry for each position,
so that an edit of the canvas is the same edit of that list. Two ways to use it: the window cache
(docs/cache.md), as the oracle of the engine's, and the block-wise dual cache that Fast-dLLM
describes (arXiv 2505.22618), as the baseline of the benchmark.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.reference.decoder import (
    Guess,
    Ids,
    Result,
    Rule,
    candidates,
    chosen,
    exact,
    expansion,
    text_is_complete,
)

#: For each position, for each layer: (key, value), each (kv_heads, head_dim).
Kept = list[list[tuple[torch.Tensor, torch.Tensor]]]


class NaiveTransformer:
    """The weights of one of our LLaDA-shaped models in a forward of its own."""

    def __init__(self, model: Any) -> None:
        self.weights = {name: weight.detach() for name, weight in model.named_parameters()}
        config = model.config
        self.layers = config.num_hidden_layers
        self.heads = config.num_attention_heads
        self.kv_heads = config.num_key_value_heads
        self.eps = config.rms_norm_eps
        self.width = config.hidden_size // self.heads
        self.theta = config.rope_theta
        self.head = self.weights.get("lm_head.weight", self.weights["model.embed_tokens.weight"])

    @torch.inference_mode()
    def __call__(self, tokens: Sequence[int], compute: Sequence[int], kept: Kept) -> torch.Tensor:
        """(computed, vocabulary). The keys and values of these positions replace what was kept."""
        at = torch.tensor(compute)
        hidden = self.weights["model.embed_tokens.weight"][torch.tensor(tokens)[at]]
        for layer in range(self.layers):
            part = f"model.layers.{layer}."
            normed = self._norm(hidden, part + "input_layernorm.weight")
            query = self._heads(normed, part + "self_attn.q_proj.weight", self.heads, at)
            key = self._heads(normed, part + "self_attn.k_proj.weight", self.kv_heads, at)
            value = self._heads(normed, part + "self_attn.v_proj.weight", self.kv_heads, None)
            for index, position in enumerate(compute):
                kept[position][layer] = (key[index], value[index])
            keys = torch.stack([kept[position][layer][0] for position in range(len(tokens))])
            values = torch.stack([kept[position][layer][1] for position in range(len(tokens))])
            repeat = self.heads // self.kv_heads
            keys = keys.repeat_interleave(repeat, dim=1)
            values = values.repeat_interleave(repeat, dim=1)
            scores = torch.einsum("qhd,khd->hqk", query, keys) / math.sqrt(self.width)
            mixed = torch.einsum("hqk,khd->qhd", scores.softmax(-1), values).flatten(1)
            hidden = hidden + mixed @ self.weights[part + "self_attn.o_proj.weight"].T
            normed = self._norm(hidden, part + "post_attention_layernorm.weight")
            gate = torch.nn.functional.silu(normed @ self.weights[part + "mlp.gate_proj.weight"].T)
            up = normed @ self.weights[part + "mlp.up_proj.weight"].T
            hidden = hidden + (gate * up) @ self.weights[part + "mlp.down_proj.weight"].T
        return self._norm(hidden, "model.norm.weight") @ self.head.T

    def nothing(self) -> list[Any]:
        """What is kept for a position that was never computed."""
        return [None] * self.layers

    def _norm(self, hidden: torch.Tensor, weight: str) -> torch.Tensor:
        scale = torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.eps)
        return hidden * scale * self.weights[weight]

    def _heads(
        self, hidden: torch.Tensor, weight: str, heads: int, at: torch.Tensor | None
    ) -> torch.Tensor:
        """(n, heads, head_dim), rotated where positions are given."""
        parts = (hidden @ self.weights[weight].T).unflatten(-1, (heads, self.width))
        if at is None:
            return parts
        half = self.width // 2
        frequency = self.theta ** (-torch.arange(half).float() / half)
        angle = at[:, None].float() * frequency
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        left, right = parts[..., :half], parts[..., half:]
        return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)


@dataclass(frozen=True)
class CacheRule:
    window: int = 32
    back: int = 24
    commits: int = 32
    steps: int = 8
    unsure: float = 0.0


@dataclass
class Cached(Result):
    refreshes: int = 0
    kept: Kept = field(default_factory=list)


def window_decode(
    net: NaiveTransformer,
    prompt: list[int],
    rule: Rule,
    ids: Ids,
    cache: CacheRule,
) -> Cached:
    """Fixed length and ρ-EOS by the τ rule."""
    canvas = [ids.mask] * rule.initial_length
    kept: Kept = [net.nothing() for _ in range(len(prompt) + len(canvas))]
    touched = [False] * len(canvas)
    result = Cached(canvas)
    refresh, sees_end, n, commits, steps = True, False, 0, 0, 0
    decided, decisions = -1, 0
    while ids.mask in canvas:
        start, total = len(prompt), len(prompt) + len(canvas)
        masked = [at for at, token in enumerate(canvas) if token == ids.mask]
        first, last = masked[0], masked[: cache.window][-1]
        compute = list(range(total))
        if not (refresh or (last == len(canvas) - 1 and not sees_end)):
            window = range(max(0, start + first - max(cache.back, 1)), start + last + 1)
            compute = [
                at for at in compute if at in window or (at >= start and touched[at - start])
            ]
        full = len(compute) == total
        guesses = guesses_of(net([*prompt, *canvas], compute, kept), compute, start, ids)
        result.nfe += 1
        result.positions_evaluated += len(compute)
        open_ = [at for at in masked if at in guesses]
        if full:
            result.refreshes += 1
            refresh, commits, steps, touched = False, 0, 0, [False] * len(canvas)
        before = list(canvas)
        now = [at for at in candidates(canvas, rule, ids) if at in guesses]
        sure = chosen(now, guesses, rule)
        ends = {*canvas, *(guesses[at].token for at in sure)} & set(ids.ends)
        if not full and sure == masked and not ends:
            sure, refresh = [], True
        for at in sure:
            canvas[at] = guesses[at].token
            touched[at] = True
            refresh = refresh or guesses[at].confidence < cache.unsure
        commits, steps = commits + len(sure), steps + 1
        refresh = refresh or commits >= cache.commits or steps >= cache.steps
        if rule.early_stop and text_is_complete(canvas, ids):
            break
        if full:
            rho = sum(guesses[at].token == ids.eos for at in masked) / len(masked)
            tail = kept[start:]
            if rule.policy == "rho-eos":
                adjust(canvas, tail, touched, rho, decisions, n - decided, rule, ids, net)
                decided, decisions = n, decisions + 1
            kept[start:] = tail
        predicted = any(guesses[at].token in ids.ends for at in open_)
        sees_end = predicted or bool(set(canvas) & set(ids.ends))
        assert len(kept) == start + len(canvas) == start + len(touched), before
        n += 1
    result.kept = kept
    return result


def adjust(
    canvas: list[int],
    kept: list[Any],
    touched: list[bool],
    rho: float,
    decisions: int,
    forwards: int,
    rule: Rule,
    ids: Ids,
    net: NaiveTransformer,
) -> None:
    if not 0 < len(canvas) < rule.max_length or decisions >= rule.horizon:
        return
    if exact(rho) < exact(rule.low):
        room = rule.max_length - len(canvas)
        wanted = min(forwards * expansion(exact(rho), rule), rule.base * rule.cap)
        for _ in range(min(wanted, room)):
            canvas.append(ids.mask)
            kept.append(net.nothing())
            touched.append(True)
    elif exact(rho) > exact(rule.high):
        for _ in range(expansion(exact(rho), rule)):
            if canvas[-1] != ids.mask:
                break
            canvas.pop()
            kept.pop()
            touched.pop()


def guesses_of(
    logits: torch.Tensor, compute: Sequence[int], start: int, ids: Ids
) -> dict[int, Guess]:
    """By canvas position."""
    probabilities = logits.softmax(-1)
    scores = logits.clone()
    scores[:, ids.mask] = -torch.inf
    tokens = scores.argmax(-1)
    return {
        at - start: Guess(
            int(tokens[index]),
            float(probabilities[index, tokens[index]]),
            float(probabilities[index, ids.eos]),
        )
        for index, at in enumerate(compute)
        if at >= start
    }


def dual_cache_decode(
    forward: Callable[[Sequence[int], Sequence[int], Any], torch.Tensor],
    prompt: list[int],
    rule: Rule,
    ids: Ids,
    empty: Callable[[int], Any],
) -> Cached:
    """Fixed length, block by block. One full forward at the start of a block, whose keys and values
    are kept; then only the block is computed; all is thrown away at its end."""
    assert rule.policy == "fixed" and rule.block is not None
    canvas = [ids.mask] * rule.initial_length
    result = Cached(canvas)
    start = len(prompt)
    for first in range(0, len(canvas), rule.block):
        members = range(first, min(first + rule.block, len(canvas)))
        kept = empty(start + len(canvas))
        compute: Sequence[int] = range(start + len(canvas))
        while any(canvas[at] == ids.mask for at in members):
            tokens = [*prompt, *canvas]
            guesses = guesses_of(forward(tokens, compute, kept), compute, start, ids)
            result.nfe += 1
            result.positions_evaluated += len(compute)
            result.refreshes += len(compute) == len(tokens)
            now = [at for at in members if canvas[at] == ids.mask]
            for at in chosen(now, guesses, rule):
                canvas[at] = guesses[at].token
            compute = [start + at for at in members]
        if rule.early_stop and text_is_complete(canvas, ids):
            break
    return result
