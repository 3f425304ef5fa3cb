"""A naive decoder of block diffusion models: every forward computes the whole row under its mask.

It is written from docs/method.md §13 alone and shares no code with the package: lists, loops, one
row at a time, a dense mask, a softmax over the whole vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

#: (input_ids (1, T), block_length, block_offset) -> logits (1, T, V)
Logits = Callable[[torch.Tensor, int, int], torch.Tensor]


@dataclass(frozen=True)
class BlockRule:
    """How a row is decoded."""

    block: int
    most: int  # tokens of the answer
    commit: str = "threshold"  # threshold, quota, editing
    threshold: float = 0.9
    sub_block: int | None = None
    steps_per_block: int | None = None
    spread: str = "first"
    editing_threshold: float = 0.5
    max_post_steps: int = 16


@dataclass
class Decoded:
    answer: list[int]  # all cells that were written, whole blocks
    forwards: int = 0
    firsts: list[int] = field(default_factory=list)  # the cells where blocks begin


@torch.no_grad()
def decode_blocks(
    logits: Logits,
    prompt: list[int],
    rule: BlockRule,
    mask: int,
    ends: tuple[int, ...],
    absolute: bool,
    shift: int = 0,
    opens: bool = False,
) -> Decoded:
    """One row, until a finished block holds an end or the answer is long enough."""
    block, row, start = rule.block, list(prompt), len(prompt)
    offset = 0 if absolute else -start % block
    done = Decoded([])

    def look() -> list[tuple[int, float]]:
        """The best token of every position, MASK excepted, and its probability."""
        done.forwards += 1
        shares = logits(torch.tensor([row]), block, offset)[0].double().softmax(-1)
        shares[:, mask] = -1.0
        best = shares.max(-1)
        return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))

    while len(row) - start < rule.most:
        first = len(row)
        end = (first + offset) // block * block + block - offset
        if not absolute:
            end = min(end, start + rule.most)
        done.firsts.append(first - start)
        step = posts = 0
        opened = opens and (first + offset) % block == 0
        if opened:  # it is read from the block before it, and never edited
            row.append(look()[first - 1][0])
            step += 1
        row += [mask] * (end - len(row))
        while True:
            said = look()
            said = [said[max(0, at - shift)] for at in range(len(row))]
            open_ = [at for at in range(first, end) if row[at] == mask]
            new = _chosen(rule, row, said, open_, first, end, step, offset, absolute)
            edited = []
            if rule.commit == "editing":
                posts += not open_
                edited = [
                    at
                    for at in range(first + opened, end)
                    if row[at] != mask
                    and said[at][0] != row[at]
                    and said[at][1] > rule.editing_threshold
                ]
            for at in (*new, *edited):
                row[at] = said[at][0]
            step += 1
            rest = any(row[at] == mask for at in range(first, end))
            if rule.commit == "editing" and not rest:
                at_rest = not open_ and not edited
                if at_rest or posts >= rule.max_post_steps:
                    break
            elif not rest:
                break
        if any(token in ends for token in row[start : start + rule.most]):
            break
    done.answer = row[start:]
    return done


def _chosen(
    rule: BlockRule,
    row: list[int],
    said: list[tuple[int, float]],
    open_: list[int],
    first: int,
    end: int,
    step: int,
    offset: int,
    absolute: bool,
) -> list[int]:
    """The MASKs that are written in this step."""
    if not open_:
        return []
    if rule.sub_block is not None:
        begin = (first + offset) // rule.block * rule.block - offset
        part = (open_[0] - begin) // rule.sub_block
        open_ = [at for at in open_ if (at - begin) // rule.sub_block == part]
    by_surety = sorted(open_, key=lambda at: -said[at][1])
    sure = [at for at in open_ if said[at][1] > rule.threshold]
    if rule.commit != "quota":
        return sure or by_surety[:1]
    size = rule.block if absolute else end - first
    steps = min(rule.steps_per_block or size, size)
    if rule.spread == "even":
        share = max(1, round(len(open_) / (steps - min(step, steps - 1))))
    else:
        share = size // steps + (min(step, steps - 1) < size % steps)
    return sure if len(sure) >= share else by_surety[:share]


def rule_of(params: dict[str, Any]) -> BlockRule:
    """The rule that decoding parameters ask for."""
    names = ("threshold", "steps_per_block", "spread", "editing_threshold", "max_post_steps")
    given = {name: params[name] for name in names if name in params}
    return BlockRule(
        params["block_length"],
        params["max_new_tokens"],
        commit=params.get("commit", "threshold"),
        sub_block=params.get("sub_block_length"),
        **given,
    )
