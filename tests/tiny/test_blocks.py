"""How `tiny-blocks` is trained: what a row shows is what decoding block by block would show."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from rho_eos.models.known import EMBEDDED
from rho_eos.models.layers.llada import LLaDAForMaskedLM
from rho_problems import TASKS
from rho_problems.tokenizer import build_tokenizer
from training.batches import batches
from training.blocks import LENGTH, Blocks, block_row, decode
from training.model import FULL, QUICK, new_model
from training.rows import LONGEST_ROW, NO_TARGET, Row, RowMaker
from training.train import Trainer


@pytest.fixture(scope="module")
def maker() -> RowMaker:
    return RowMaker(build_tokenizer(), np.random.default_rng(0))


@pytest.fixture(scope="module")
def model(maker: RowMaker) -> LLaDAForMaskedLM:
    """A random model: with silent branches nothing would depend on anything."""
    torch.manual_seed(0)
    model = new_model(QUICK, maker.tokenizer)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


def row_of(maker: RowMaker, name: str, steps: int) -> tuple[np.ndarray, np.ndarray, Row]:
    prompt, answer = maker.encode(TASKS[name].problem(4, steps, split="train"))
    return prompt, answer, block_row(maker, prompt, answer)


def clean_of(row: Row) -> np.ndarray:
    return row.ids[row.stream == 0]


@torch.no_grad()
def block_by_block(model: LLaDAForMaskedLM, ids: np.ndarray) -> torch.Tensor:
    """Logits where every position sees its own block and the earlier ones."""
    sees = [[j // LENGTH <= i // LENGTH for j in range(len(ids))] for i in range(len(ids))]
    mask = torch.where(torch.tensor(sees), 0.0, -torch.inf)[None, None]
    return model(torch.from_numpy(ids)[None], attention_mask=mask).logits[0]


@pytest.mark.parametrize("name", list(TASKS))
def test_a_row_predicts_what_decoding_would_with_the_same_block_open(
    maker: RowMaker, model: LLaDAForMaskedLM, name: str
) -> None:
    prompt, _, row = row_of(maker, name, 5)
    batch = batches([row], 10**6, np.random.default_rng(0))[0]
    with torch.no_grad():
        predicted = model(
            batch.ids, attention_mask=batch.attention_mask(), position_ids=batch.positions
        ).logits[0]
    opened = set(row.block[row.stream == 1])
    assert len(prompt) // LENGTH in opened, "the block in which the answer begins"
    for block in opened:
        copy = (row.stream == 1) & (row.block == block)
        finished = clean_of(row)[: block * LENGTH]
        shown = block_by_block(model, np.concatenate([finished, row.ids[copy]]))
        assert torch.allclose(predicted[copy], shown[-LENGTH:], atol=1e-4)


@pytest.mark.parametrize("name", list(TASKS))
def test_answers_are_padded_to_the_end_of_a_block(maker: RowMaker, name: str) -> None:
    """Whole blocks, and at least one EOS even where the answer fills its last block."""
    left = set()
    for steps in range(1, 11):
        prompt, answer, row = row_of(maker, name, steps)
        text = np.concatenate([prompt, answer])
        padding = clean_of(row)[len(text) :]
        assert (clean_of(row)[: len(text)] == text).all()
        assert len(clean_of(row)) % LENGTH == 0
        assert 1 <= len(padding) <= LENGTH and set(padding) == {maker.eos}
        left.add(len(padding))
    assert len(left) > 3, "answers should end at various places of a block"


@pytest.mark.parametrize("name", list(TASKS))
def test_everything_hidden_is_asked_for_and_nothing_of_the_prompt(
    maker: RowMaker, name: str
) -> None:
    hidden = total = 0
    for _ in range(50):
        prompt, _, row = row_of(maker, name, 6)
        copy, text = row.stream == 1, clean_of(row)
        is_mask = row.ids == maker.mask
        assert (is_mask == (row.targets != NO_TARGET)).all()
        assert (row.targets[is_mask] == text[row.positions[is_mask]]).all()
        assert (row.ids[~is_mask] == text[row.positions[~is_mask]]).all()
        assert not is_mask[row.positions < len(prompt)].any()
        assert (row.weights[is_mask] > 0).all()
        blocks = row.block[copy].reshape(-1, LENGTH)[:, 0]
        assert all(is_mask[copy & (row.block == block)].any() for block in blocks)
        hidden += int(is_mask.sum())
        total += int(copy.sum())
    assert 0.4 < hidden / total < 0.9


def test_long_rows_copy_some_of_the_blocks_and_in_the_end_all(maker: RowMaker) -> None:
    lengths, copied, last = [], set(), 0
    for _ in range(60):
        _, _, row = row_of(maker, "tiny-mbpp", 14)
        lengths.append(len(row))
        copied |= set(row.block[row.stream == 1])
        last = len(clean_of(row)) // LENGTH
    prompt, _, _ = row_of(maker, "tiny-mbpp", 14)
    assert max(lengths) <= LONGEST_ROW
    assert copied == set(range(len(prompt) // LENGTH, last))


def test_rehearsing_fills_in_right_tokens_and_leaves_something_of_every_block(
    tmp_path: Path, maker: RowMaker
) -> None:
    """With `tiny`'s weights, which are sure of a lot."""
    trainer = Trainer(tmp_path, FULL, seed=1, recipe=Blocks())
    rows = [row_of(maker, name, 4)[2] for name in TASKS]
    (before,) = batches(rows, 10**6, np.random.default_rng(0))
    after = trainer.rehearsed(before)
    filled = before.ids != after.ids
    assert filled.sum() > 20
    assert (after.ids[filled] == before.targets[filled]).all()
    assert (after.targets[filled] == NO_TARGET).all()
    for row, block in {(int(r), int(before.block[r, c])) for r, c in filled.nonzero()}:
        assert (after.targets[row][after.block[row] == block] != NO_TARGET).any()


def test_decoding_follows_the_rule_step_by_step(maker: RowMaker, model: LLaDAForMaskedLM) -> None:
    """One row after the other and forward by forward, against all rows at once."""
    prompts = [maker.encode_prompt("What is (3 + 4)?" + " 2" * more) for more in range(5)]
    together = decode(model, prompts, threshold=0.2, most=40)
    for prompt, reply in zip(prompts, together, strict=True):
        ids = prompt
        while maker.eos not in ids[len(prompt) :] and len(ids) < len(prompt) + 40:
            ids = np.pad(ids, (0, LENGTH - len(ids) % LENGTH), constant_values=maker.mask)
            while (masked := ids == maker.mask).any():
                shares = block_by_block(model, ids).softmax(-1)
                shares[:, maker.mask] = 0.0
                best, tokens = shares.max(-1)
                best[torch.from_numpy(~masked)] = -1.0
                chosen = (best > 0.2).numpy()
                chosen[int(best.argmax())] = True
                ids = np.where(chosen, tokens.numpy(), ids)
        assert reply == ids[len(prompt) :][:40].tolist()


def test_its_decoder_ends_an_answer_with_eos() -> None:
    """`tiny` was never trained for blocks, but knows next-block rows well enough for this."""
    model = LLaDAForMaskedLM.from_pretrained(EMBEDDED["tiny"], dtype=torch.float32)
    maker = RowMaker(build_tokenizer(), np.random.default_rng(0))
    problem = TASKS["tiny-math"].problem(3, 1)
    (reply,) = decode(model, [maker.encode_prompt(problem.prompt)])
    text, end, padding = maker.tokenizer.decode(reply).partition("<|endoftext|>")
    assert text == problem.answer
    assert end and not padding.replace(end, "")


def test_the_checkpoint_says_how_long_blocks_are_and_where_they_begin(tmp_path: Path) -> None:
    Trainer(tmp_path, FULL, seed=1, recipe=Blocks()).export()
    saved = json.loads((tmp_path / "config.json").read_text())
    tiny = json.loads((EMBEDDED["tiny"] / "config.json").read_text())
    added = {name: value for name, value in saved.items() if name not in tiny}
    assert added == {"block_length": 16, "block_alignment": "absolute"}
    assert saved["model_type"] == "llada"
