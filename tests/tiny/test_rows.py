"""Training rows: what may see what, and what is asked for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rho_eos.embedded.tasks import TASKS
from rho_eos.embedded.tokenizer import build_tokenizer
from rho_eos.models.layers.llada import LLaDAForMaskedLM
from training.batches import batches
from training.model import FULL, QUICK, new_model
from training.rows import LONGEST_CANVAS, NO_TARGET, Row, RowMaker


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


def test_a_canvas_row_is_read_in_both_directions(maker: RowMaker, model: LLaDAForMaskedLM) -> None:
    row = maker.canvas_row(*encoded(maker))
    first = predictions(model, row)[0]
    changed = row.ids.copy()
    changed[-1] = 0
    assert not torch.allclose(predictions(model, row, ids=changed)[0], first)


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


def test_drills_ask_for_results_only(maker: RowMaker) -> None:
    row = maker.drill_row()
    text = maker.tokenizer.decode(row.ids[row.stream == 0])
    equations = [line.split(" = ") for line in text.strip().splitlines()]
    assert [eval(left) for left, _ in equations] == [int(right) for _, right in equations]
    results = maker.tokenizer.decode(row.targets[row.targets != NO_TARGET])
    assert results.split() == [right for _, right in equations]


def test_lookup_rows_ask_for_every_item_and_for_the_end(maker: RowMaker) -> None:
    row = maker.lookup_row()
    clean = row.ids[row.stream == 0]
    end = int(np.flatnonzero(clean == maker.end)[-1])
    copies = np.flatnonzero(maker.is_label[clean])
    prompt_labels, answer_labels = np.split(copies, 2)
    assert (clean[prompt_labels] == clean[answer_labels]).all()
    asked = row.targets[row.targets != NO_TARGET]
    assert asked[-1] == clean[end] == maker.end
    items = np.split(clean[: answer_labels[0]], prompt_labels)[1:]
    words = [
        token for item in items for token in item if token not in (maker.line_break, maker.space)
    ]
    assert asked[:-1].tolist() == words


@torch.no_grad()
def test_a_new_model_already_looks_up_what_follows_a_label(maker: RowMaker) -> None:
    """Before any training, it prefers the right one of the prompt's words far beyond chance."""
    torch.manual_seed(0)
    model = new_model(FULL, maker.tokenizer).eval()
    found = by_chance = 0.0
    for _ in range(10):
        row = maker.lookup_row()
        logits = predictions(model, row)
        offered = np.unique(row.ids[: int(np.argmax(row.block > 0))])
        offered = offered[np.isin(offered, maker.words)]
        for at in np.flatnonzero(row.targets != NO_TARGET):
            if np.isin(row.targets[at], offered):
                found += offered[int(logits[at, offered].argmax())] == row.targets[at]
                by_chance += 1 / len(offered)
    assert found > 5 * by_chance
