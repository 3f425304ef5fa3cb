"""Decoding with kept keys and values, as plainly as it can be written.

A transformer in LLaDA's form, written out; it keeps a list with one entry for each position,
so that an edit of the canvas is the same edit of that list. Two rules use it: the window cache
(docs/cache.md), and the block-wise dual cache that Fast-dLLM describes (arXiv 2505.22618).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
    guesses_of,
    look_aside,
    masks,
    open_block,
    remember,
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


@dataclass
class Cached(Result):
    refreshes: int = 0


def window_decode(net: NaiveTransformer, prompt: list[int], rule: Rule, ids: Ids) -> Cached:
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
        first, end = window_of(canvas, rule, ids)
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
        inside = [at - start for at in compute if at >= start]
        found = guesses_of(logits, [canvas[at] for at in inside], ids, wish)
        guesses = dict(zip(inside, found, strict=True))
        result.nfe += 1
        result.positions_evaluated += len(compute)
        if full:
            result.refreshes += 1
            refresh, commits, steps = False, 0, 0

        def predict(cells: list[int], wish: Wish = wish) -> list[Guess]:
            """What the model says of another canvas, of which nothing is kept."""
            row = [*prompt, *cells]
            logits = net(row, range(len(row)), [net.nothing() for _ in row])
            return guesses_of(logits, cells, ids, replace(wish, more=True))

        for other in look_aside(canvas, wish if full else Wish(), rule, ids, predict):
            result.positions_evaluated += start + len(other)
        was = list(zip(canvas, canvas.memory, strict=True))
        masked = masks(canvas, ids)
        predicted = any(guesses[at].token in ids.ends for at in masked if at in guesses)
        remember(canvas, guesses, rule, ids)
        if full:
            wish = wish_of(loop, rule, [guesses[at] for at in range(len(canvas))])
        else:
            now = [at for at in candidates(canvas, rule, ids) if at in guesses]
            written, taken = chosen(canvas, now, guesses, rule, ids)
            ends = {*canvas, *(guesses[at].token for at in written)} & set(ids.ends)
            if written == masked and not ends and rule.policy != "fixed":
                written, taken, refresh = [], [], True
            write(canvas, written, taken, guesses, rule, ids)
        where = {id(cell): at for at, cell in enumerate(canvas.memory)}
        places = [where.get(id(cell)) for _, cell in was]  # where each cell stands now, if it does
        for index, (token, cell) in enumerate(was):
            at = places[index]
            if at is not None and canvas[at] != token:
                cell["old"] = True
                commits += 1
                if token == ids.mask:
                    refresh = refresh or guesses[index].confidence < rule.cache_unsure
        steps += 1
        refresh = refresh or commits >= rule.cache_commits or steps >= rule.cache_steps
        left = len(places) - places.count(None)
        refresh = refresh or places[:left] != list(range(left))
        sees_end = predicted or bool(set(canvas) & set(ids.ends))
        canvas.step += 1
        if (rule.early_stop and canvas.complete) or ids.mask not in canvas:
            break
    return result


def window_of(canvas: Cells, rule: Rule, ids: Ids) -> tuple[int, int]:
    """The first and the end of the cells that are being written."""
    if rule.block_length is None:
        masked = masks(canvas, ids)
        return masked[0], masked[: rule.cache_window][-1] + 1
    block = open_block(canvas, rule, ids)
    return block.start, block.stop


def dual_cache_decode(
    forward: Callable[[Sequence[int], Sequence[int], Any], torch.Tensor],
    prompt: list[int],
    rule: Rule,
    ids: Ids,
    empty: Callable[[int], Any],
) -> Cached:
    """Fixed length, block by block. One full forward at the start of a block, whose keys and values
    are kept; then only the block is computed; all is thrown away at its end."""
    assert rule.policy == "fixed" and rule.block_length is not None
    result = Cached(Cells([ids.mask] * rule.initial_length))
    canvas, start, last = result.canvas, len(prompt), range(0)
    while ids.mask in canvas and not (rule.early_stop and canvas.complete):
        block, row = open_block(canvas, rule, ids), [*prompt, *canvas]
        if block != last:
            kept = empty(len(row))
        compute = (
            range(len(row)) if block != last else range(start + block[0], start + block[-1] + 1)
        )
        last = block
        scores = forward(row, compute, kept)
        inside = [at - start for at in compute if at >= start]
        found = guesses_of(scores, [canvas[at] for at in inside], ids, Wish())
        guesses = dict(zip(inside, found, strict=True))
        result.nfe += 1
        result.positions_evaluated += len(compute)
        result.refreshes += len(compute) == len(row)
        now = [at for at in block if canvas[at] == ids.mask]
        write(canvas, *chosen(canvas, now, guesses, rule, ids), guesses, rule, ids)
        canvas.step += 1
    return result
