"""How `terse` is trained: which answer a canvas gets, and what it begins with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from rho_eos.base.errors import UserError
from rho_eos.embedded.tasks import TASKS
from rho_eos.embedded.tokenizer import build_tokenizer
from rho_eos.models.known import EMBEDDED
from training.brevity import MARGIN, Brevity, canvas_length, fullest_that_fits
from training.model import FULL, QUICK
from training.rows import LONGEST_CANVAS, NO_TARGET, RowMaker
from training.train import Trainer

LENGTHS = (200, 60, 2)


@pytest.fixture(scope="module")
def maker() -> RowMaker:
    return RowMaker(build_tokenizer(), np.random.default_rng(0))


def chosen(room: int) -> np.ndarray:
    """How often each of the answers is."""
    rng = np.random.default_rng(room)
    return np.bincount([fullest_that_fits(LENGTHS, room, rng) for _ in range(500)], minlength=3)


@given(st.integers(3, LONGEST_CANVAS), st.integers(0, 10**6))
def test_what_is_chosen_fits_with_an_eos_behind_it(room: int, seed: int) -> None:
    index = fullest_that_fits(LENGTHS, room, np.random.default_rng(seed))
    assert LENGTHS[index] < room


@pytest.mark.parametrize(("room", "fullest"), [(16, 2), (60, 2), (100, 1), (200, 1), (300, 0)])
def test_it_is_mostly_the_fullest_that_fits(room: int, fullest: int) -> None:
    counts = chosen(room)
    assert counts[fullest] > 0.9 * 500
    assert counts[:fullest].sum() == 0


def test_where_an_answer_just_fits_it_is_either() -> None:
    counts = chosen(round(LENGTHS[0] / (1 - MARGIN / 2)))
    assert min(counts[0], counts[1]) > 0.3 * counts.sum()


def test_canvases_are_drawn_on_both_sides_of_the_full_answer(maker: RowMaker) -> None:
    drawn = np.array([canvas_length(maker, LENGTHS) for _ in range(2000)])
    assert drawn.min() < 8 and drawn.max() > 400
    assert 0.5 < (drawn > LENGTHS[0]).mean() < 0.62
    assert 0.15 < (drawn <= 32).mean() < 0.4


def test_a_short_answer_is_often_seen_on_a_long_canvas(maker: RowMaker) -> None:
    """Else a long canvas means a long answer, and a story gets events that it does not have."""
    drawn = np.array([canvas_length(maker, (30, 12, 2)) for _ in range(2000)])
    assert (drawn > 150).mean() > 0.1


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
    trainer.save()
    again = Trainer(tmp_path, FULL, seed=1, recipe=Brevity())
    again.load()
    trained, loaded = trainer.model.state_dict(), again.model.state_dict()
    assert all(torch.equal(loaded[name], weight) for name, weight in trained.items())
    trainer.export()
    assert not torch.equal(
        load_file(tmp_path / "model.safetensors")["model.transformer.wte.weight"],
        tiny["model.transformer.wte.weight"],
    )


def test_it_has_the_size_of_tiny(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="weights of tiny"):
        Trainer(tmp_path, QUICK, seed=1, recipe=Brevity())
