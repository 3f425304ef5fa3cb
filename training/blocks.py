"""How `tiny-blocks` is trained: block by block, where nothing sees a block behind its own.

A block is 16 consecutive positions of prompt and answer, counted from the start of the prompt, and
a position sees its own block and all earlier ones. What is finished can then be kept for ever, and
decoding opens one block after the other until one of them holds an EOS. The answer may begin in the
middle of a block, beside the prompt's last words, and is padded with EOS to the end of a block.

A row has two streams (`rows.py`): prompt and answer in clear, then a masked copy of the blocks that
decoding fills, from the one in which the answer begins. It begins with the weights of `tiny`, which
were never shown a prompt that cannot look ahead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from rho_eos.models.layers.llada import LLaDAForMaskedLM
from rho_problems.problem import Problem
from rho_problems.tokenizer import build_tokenizer
from training.curriculum import BLOCKS, Phase, Sibling, ramp
from training.rows import LONGEST_ROW, NEAR, NO_TARGET, Ints, Kind, Row, RowMaker

LENGTH = 16  # of a block
FRESH = 0.35  # share of blocks that are still all MASK
THRESHOLD = 0.9


class Blocks(Sibling):
    """See the module."""

    config: ClassVar[Mapping[str, Any]] = {"block_length": LENGTH, "block_alignment": "absolute"}

    def phase(self, moment: float, step: int) -> Phase:
        """One kind of row; first what a block may be, then what decoding makes of it."""
        return Phase(
            least_difficulty=1.0,
            drills=0.0,
            two_stream=0.0,
            blocks=np.ones(len(BLOCKS)) / len(BLOCKS),
            rehearsals=3 if moment > 0.25 else 0,
            oversure=ramp(moment, [0.2, 0.5, 0.8], [1.0, 10.0, 30.0]),
            rate=min(1.0, (step + 1) / 50) * ramp(moment, [0.3, 1.0], [0.15, 0.01]),
        )

    def canvas_row(self, maker: RowMaker, problem: Problem, task: int) -> Row:
        return block_row(maker, *maker.encode(problem), task)

    def answers(self, folder: Path, prompts: Sequence[str], length: int) -> list[str]:
        model = LLaDAForMaskedLM.from_pretrained(
            folder, dtype=torch.float32, trust_remote_code=False
        ).eval()
        maker = RowMaker(build_tokenizer(), np.random.default_rng())
        replies = decode(model, [maker.encode_prompt(prompt) for prompt in prompts], most=length)
        return [maker.tokenizer.decode(_before(reply, maker.eos)) for reply in replies]


def block_row(maker: RowMaker, prompt: Ints, answer: Ints, task: int = 0) -> Row:
    """The masked copy is cut to some of its blocks where the row would grow too long."""
    rng = maker.rng
    text = np.concatenate([prompt, answer])
    text = np.pad(text, (0, LENGTH - len(text) % LENGTH), constant_values=maker.eos)
    weights = np.zeros(len(text))
    weights[len(prompt) :] = maker.weights(text[len(prompt) :], **NEAR)
    first, end = len(prompt) // LENGTH, len(text) // LENGTH
    room = max(1, (LONGEST_ROW - len(text)) // LENGTH)
    copies = []
    for block in rng.permutation(np.arange(first, end))[:room]:
        places = np.arange(block * LENGTH, (block + 1) * LENGTH)
        still = places[places >= len(prompt)]
        if rng.random() > FRESH:
            still = still[maker.still_hidden(text[still])]
        copies.append((places, np.isin(places, still)))
    copied = np.concatenate([places for places, _ in copies])
    hidden = np.concatenate([masked for _, masked in copies])
    positions = np.concatenate([np.arange(len(text)), copied])
    return Row(
        ids=np.concatenate([text, np.where(hidden, maker.mask, text[copied])]),
        positions=positions,
        stream=(np.arange(len(positions)) >= len(text)).astype(int),
        block=positions // LENGTH,
        targets=np.concatenate(
            [np.full(len(text), NO_TARGET), np.where(hidden, text[copied], NO_TARGET)]
        ),
        weights=np.concatenate([np.zeros(len(text)), weights[copied]]),
        kind=Kind.CANVAS,  # what decoding shows
        task=task,
    )


@torch.no_grad()
def decode(
    model: LLaDAForMaskedLM,
    prompts: Sequence[Ints],
    *,
    threshold: float = THRESHOLD,
    most: int = 384,
) -> list[list[int]]:
    """The new tokens of each, by the plainest means: every step computes everything again.

    In each step the MASKs of the open block whose prediction is surer than the threshold are
    committed, or else the surest. A row ends with a block that holds an EOS.
    """
    mask, eos = model.config.mask_token_id, model.config.eos_token_id
    rows = [[*map(int, prompt)] for prompt in prompts]
    for row in rows:
        _open(row, mask)
    running = list(range(len(rows)))
    while running:
        longest = max(len(rows[index]) for index in running)
        # What pads a row lies in blocks behind it, which nothing of the row sees.
        ids = torch.tensor([rows[i] + [eos] * (longest - len(rows[i])) for i in running])
        block = torch.arange(longest) // LENGTH
        sees = torch.zeros(longest, longest).masked_fill_(block[:, None] < block, float("-inf"))
        hidden = model.model(
            ids, attention_mask=sees.expand(len(running), 1, -1, -1)
        ).last_hidden_state
        for at, index in enumerate(running):
            row = rows[index]
            places = [i for i in range(len(row) - LENGTH, len(row)) if row[i] == mask]
            shares = model.lm_head(hidden[at, places]).softmax(-1)
            shares[:, mask] = 0.0
            best, tokens = shares.max(-1)
            for place, share, token in zip(places, best, tokens, strict=True):
                if share > threshold or share == best.max():
                    row[place] = int(token)
            if mask not in row[-LENGTH:]:
                new = row[len(prompts[index]) :]
                if eos not in new and len(new) < most:
                    _open(row, mask)
        running = [i for i in running if mask in rows[i][-LENGTH:]]
    return [row[len(prompt) :][:most] for row, prompt in zip(rows, prompts, strict=True)]


def _open(row: list[int], mask: int) -> None:
    """Add MASKs to the end of a block: of the one that is begun, or else of the next."""
    row += [mask] * (LENGTH - len(row) % LENGTH)


def _before(reply: list[int], end: int) -> list[int]:
    return reply[: reply.index(end)] if end in reply else reply
