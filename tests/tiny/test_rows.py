"""Training rows: what may see what, what is asked for, and which answers `terse` is shown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rho_eos.base.errors import UserError
from rho_eos.models.known import EMBEDDED
from rho_eos.models.layers.llada import LLaDAForMaskedLM
from rho_problems import TASKS
from rho_problems.tokenizer import build_tokenizer
from training.batches import batches
from training.brevity import Brevity
from training.model import FULL, QUICK, new_model
from training.rows import LONGEST_CANVAS, NO_TARGET, Row, RowMaker
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


def predictions(model: LLaDAForMaskedLM, row: Row, **changed: np.ndarray) -> torch.Tensor:
    batch = batches([row], 10**6, np.random.default_rng(0))[0]
    ids = torch.from_numpy(changed.get("ids", row.ids))[None]
    with torch.no_grad():
        return model(
            ids, attention_mask=batch.attention_mask(), position_ids=batch.positions
        ).logits[0]


def encoded(maker: RowMaker, name: str = "tiny-gsm") -> tuple[np.ndarray, np.ndarray]:
    return maker.encode(TASKS[name].problem(4, difficulty=3, split="train"))


@pytest.mark.parametrize("block", [1, 4, 32])
def test_a_masked_copy_never_sees_the_answer_it_is_asked_for(
    maker: RowMaker, model: LLaDAForMaskedLM, block: int
) -> None:
    prompt, answer = encoded(maker)
    row = maker.two_stream_row(prompt, answer, block)
    clean = int((row.stream == 0).sum())
    asked = clean + int(np.argmax(row.targets[clean:] != NO_TARGET))
    before = predictions(model, row)[asked]
    own_block = (row.stream == 0) & (row.block >= row.block[asked])
    scrambled = np.where(own_block, 0, row.ids)
    assert torch.allclose(predictions(model, row, ids=scrambled)[asked], before, atol=1e-5)
    without_prompt = np.where(np.arange(len(row)) < len(prompt), 0, row.ids)
    assert not torch.allclose(predictions(model, row, ids=without_prompt)[asked], before)


def test_padding_changes_nothing(maker: RowMaker, model: LLaDAForMaskedLM) -> None:
    short = maker.canvas_row(*encoded(maker, "tiny-math"))
    long = maker.canvas_row(*encoded(maker, "tiny-mbpp"))
    batch = batches([short, long], 10**6, np.random.default_rng(0))[0]
    with torch.no_grad():
        together = model(
            batch.ids, attention_mask=batch.attention_mask(), position_ids=batch.positions
        ).logits
    alone = predictions(model, short)
    index = 0 if len(short) <= len(long) else 1
    assert torch.allclose(together[index, : len(short)], alone, atol=1e-4)


def test_canvases_are_asked_for_what_they_hide_and_end_in_eos(maker: RowMaker) -> None:
    prompt, answer = encoded(maker)
    lengths = set()
    for _ in range(200):
        row = maker.canvas_row(prompt, answer)
        canvas = row.ids[len(prompt) :]
        full = np.full(LONGEST_CANVAS, maker.eos)
        full[: len(answer)] = answer
        hidden = canvas == maker.mask
        assert hidden.any()
        assert (canvas[~hidden] == full[: len(canvas)][~hidden]).all()
        targets = row.targets[len(prompt) :]
        assert (targets[hidden] == full[: len(canvas)][hidden]).all()
        assert (row.targets[: len(prompt)] == NO_TARGET).all()
        lengths.add(len(canvas))
    assert min(lengths) < len(answer), "some canvases must be too short"
    assert max(lengths) > 300, "some canvases must be far too long"


@pytest.mark.parametrize("name", list(TASKS))
def test_a_row_asks_for_one_of_the_answers_whole(maker: RowMaker, name: str) -> None:
    """Never cut, and the shorter the canvas the shorter the answer."""
    problem = TASKS[name].problem(4, difficulty=6, split="train")
    prompt, full = maker.encode(problem)
    answers = {problem.answer, *problem.shorter}
    sizes = []
    for _ in range(100):
        row = Brevity().canvas_row(maker, problem, 0)
        targets, ids = row.targets[len(prompt) :], row.ids[len(prompt) :]
        canvas = np.where(targets == NO_TARGET, ids, targets)
        text, end, padding = maker.tokenizer.decode(canvas).partition("<|endoftext|>")
        assert text in answers
        assert end and not padding.replace(end, "")
        sizes.append((len(canvas), len(maker.encode_text(text))))
    assert {size for room, size in sizes if room > 1.5 * len(full)} >= {len(full)}
    assert max(size for room, size in sizes if room <= len(full)) < len(full)


def test_it_begins_with_the_weights_of_tiny_and_changes_them(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, FULL, seed=1, recipe=Brevity())
    trainer.export()
    exported, tiny = (
        load_file(folder / "model.safetensors") for folder in (tmp_path, EMBEDDED["tiny"])
    )
    assert exported.keys() == tiny.keys()
    assert all(torch.equal(exported[name], weight) for name, weight in tiny.items())
    trainer.train_step(0.0)
    trainer.export()
    assert not torch.equal(
        load_file(tmp_path / "model.safetensors")["model.transformer.wte.weight"],
        tiny["model.transformer.wte.weight"],
    )
    with pytest.raises(UserError, match="weights of tiny"):
        Trainer(tmp_path, QUICK, seed=1, recipe=Brevity())
