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
    LOOPS,
    Cells,
    Guess,
    Ids,
    Result,
    Rule,
    Wish,
    candidates,
    chosen,
    look_aside,
    more_of,
    remember,
    text_is_complete,
    wish_of,
    write,
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
    window: int = 32  # MASKs, without blocks
    commits: int = 48
    steps: int = 24
    unsure: float = 0.0


@dataclass
class Cached(Result):
    refreshes: int = 0
    kept: Kept = field(default_factory=list)


def window_decode(
    net: NaiveTransformer, prompt: list[int], rule: Rule, ids: Ids, cache: CacheRule
) -> Cached:
    """Any length policy by any commit rule. The policy is asked where everything was computed; in
    between the commit rule goes on alone. Each cell remembers its keys and values."""
    result = Cached(Cells([ids.mask] * rule.initial_length))
    canvas = result.canvas
    loop = LOOPS[rule.policy](canvas, rule, ids)
    wish = wish_of(loop, rule)
    before: Kept = [net.nothing() for _ in prompt]
    refresh, sees_end, commits, steps, last_block = True, False, 0, 0, -1
    while wish is not None:
        start, total = len(prompt), len(prompt) + len(canvas)
        first, end = window_of(canvas, rule, ids, cache)
        compute = list(range(total))
        if not (refresh or wish.everything or (end == len(canvas) and not sees_end)):
            compute = [
                at
                for at in compute
                if start + first - 1 <= at < start + end
                or (at >= start and "kv" not in canvas.memory[at - start])
                or (at >= start and first != last_block and canvas.memory[at - start].get("old"))
            ]
            last_block = first
        full = len(compute) == total
        kept: Kept = [*before, *(cell.get("kv") or net.nothing() for cell in canvas.memory)]
        logits = net([*prompt, *canvas], compute, kept)
        before, clean = kept[:start], {at - start for at in compute}
        for at, cell in enumerate(canvas.memory):
            cell["kv"], cell["old"] = kept[start + at], cell.get("old") and at not in clean
        guesses = guesses_of(logits, compute, start, ids, wish.more, canvas)
        result.nfe += 1
        result.positions_evaluated += len(compute)
        if full:
            result.refreshes += 1
            refresh, commits, steps = False, 0, 0
        for other in look_aside(
            canvas,
            wish if full else Wish(),
            rule,
            ids,
            lambda cells: exact_guesses(net, prompt, cells, ids),
        ):
            result.positions_evaluated += start + len(other)
        was = list(zip(canvas, canvas.memory, strict=True))
        masked = [at for at, token in enumerate(canvas) if token == ids.mask]
        predicted = any(guesses[at].token in ids.ends for at in masked if at in guesses)
        order = [id(cell) for cell in canvas.memory]
        remember(canvas, guesses, rule, ids)
        if full:
            wish = wish_of(loop, rule, [guesses[at] for at in range(len(canvas))])
        else:
            now = [at for at in candidates(canvas, rule, ids) if at in guesses]
            written, taken = chosen(canvas, now, guesses, rule, ids)
            ends = {*canvas, *(guesses[at].token for at in written)} & set(ids.ends)
            if written == masked and not ends and rule.policy != "fixed":
                written, taken, refresh = [], [], True
            write(canvas, written, taken, guesses, ids)
        # What the step wrote, wherever it stands now.
        changed = [
            index
            for index, (token, cell) in enumerate(was)
            if (at := place(canvas, cell)) is not None and canvas[at] != token
        ]
        for index in changed:
            was[index][1]["old"] = True
            if was[index][0] == ids.mask:
                refresh = refresh or guesses[index].confidence < cache.unsure
        steps += 1
        commits += len(changed)
        refresh = refresh or commits >= cache.commits or steps >= cache.steps
        kept_order = [id(cell) for cell in canvas.memory if id(cell) in set(order)]
        refresh = refresh or [id(cell) for cell in canvas.memory][: len(kept_order)] != kept_order
        refresh = refresh or order[: len(kept_order)] != kept_order
        sees_end = predicted or bool(set(canvas) & set(ids.ends))
        canvas.step += 1
        if rule.early_stop and text_is_complete(canvas, ids):
            break
        if ids.mask not in canvas:
            break
    result.kept = [*before, *(cell.get("kv") or net.nothing() for cell in canvas.memory)]
    return result


def window_of(canvas: Cells, rule: Rule, ids: Ids, cache: CacheRule) -> tuple[int, int]:
    """The first and the end of the cells that are being written."""
    masked = [at for at, token in enumerate(canvas) if token == ids.mask]
    if rule.block is None:
        return masked[0], masked[: cache.window][-1] + 1
    first = masked[0] // rule.block * rule.block
    return first, min(first + rule.block, len(canvas))


def place(canvas: Cells, cell: dict[str, Any]) -> int | None:
    """Where a cell stands now; None: it is gone."""
    return next((at for at, other in enumerate(canvas.memory) if other is cell), None)


def exact_guesses(
    net: NaiveTransformer, prompt: list[int], cells: list[int], ids: Ids
) -> list[Guess]:
    """Those of a canvas of which nothing is kept."""
    compute = range(len(prompt) + len(cells))
    kept: Kept = [net.nothing() for _ in compute]
    logits = net([*prompt, *cells], compute, kept)
    found = guesses_of(logits, compute, len(prompt), ids, True, cells)
    return [found[at] for at in range(len(cells))]


def guesses_of(
    logits: torch.Tensor,
    compute: Sequence[int],
    start: int,
    ids: Ids,
    more: bool = False,
    standing: Sequence[int] = (),
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
            **(more_of(probabilities[index], standing[at - start], ids) if more else {}),
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
    result = Cached(Cells([ids.mask] * rule.initial_length))
    canvas, start = result.canvas, len(prompt)
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
            for at in chosen(canvas, now, guesses, rule, ids)[0]:
                canvas[at] = guesses[at].token
            compute = [start + at for at in members]
        if rule.early_stop and text_is_complete(canvas, ids):
            break
    return result
