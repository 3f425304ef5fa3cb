"""Logits equal to those of the families' own code, alone and packed with other rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel

from rho_eos.decoding.params import DecodeParams
from rho_eos.engine.batch import RowInput, pack
from rho_eos.engine.request import Handle
from rho_eos.engine.row import Row
from rho_eos.engine.runner import ModelRunner
from rho_eos.models.family import FAMILIES
from tests.models.parity import FAMILY, NAMES, PARITY, packed_logits, recorded
from tests.reference.bridge import SPECIAL
from tests.requests import request as request_for

LLADA = [name for name in NAMES if FAMILY[name] == "llada"]
TOLERANCE = 1e-4

Load = Callable[[str], Any]


@pytest.mark.parametrize("name", NAMES)
def test_the_auto_class_returns_our_model(name: str, parity_model: Load) -> None:
    model = parity_model(name)
    family = AutoConfig.from_pretrained(PARITY / name).model_type
    assert type(model) is FAMILIES.find(family).masked_lm
    assert type(model.model) is FAMILIES.find(family).masked_lm.stack_class


@pytest.mark.parametrize("name", NAMES)
@torch.inference_mode()
def test_only_what_is_read_is_returned_and_is_the_same(name: str, parity_model: Load) -> None:
    model = parity_model(name)
    rows, expected = recorded(name)
    read_at = torch.tensor([len(rows[0]) - 1, 0, 2])
    hidden = model.model(rows[0][None], read_at=read_at).last_hidden_state
    assert hidden.shape[1] == 3
    assert (model.lm_head(hidden)[0] - expected[0][read_at]).abs().max() <= TOLERANCE


@torch.inference_mode()
def test_auto_model_is_the_stack_without_a_head() -> None:
    stack = AutoModel.from_config(AutoConfig.from_pretrained(PARITY / "llada-gqa"))
    assert stack(torch.tensor([[5, 6, 7]])).last_hidden_state.shape == (1, 3, 64)


@pytest.mark.parametrize("name", NAMES)
@torch.inference_mode()
def test_alone(name: str, parity_model: Load) -> None:
    rows, expected = recorded(name)
    for row, logits in zip(rows, expected, strict=True):
        torch.testing.assert_close(
            parity_model(name)(row[None]).logits[0], logits, rtol=0, atol=TOLERANCE
        )


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", NAMES)
@torch.inference_mode()
def test_padded(name: str, side: str, parity_model: Load) -> None:
    """A 2D attention mask, as any transformers model takes it."""
    rows, expected = recorded(name)
    width = max(map(len, rows)) + 2
    ids = torch.full((len(rows), width), 2)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    where = [slice(width - len(r), width) if side == "left" else slice(0, len(r)) for r in rows]
    for index, row in enumerate(rows):
        ids[index, where[index]] = row
        mask[index, where[index]] = 1
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    logits = parity_model(name)(ids, attention_mask=mask, position_ids=positions).logits
    assert logits.isfinite().all()
    for index, row in enumerate(expected):
        torch.testing.assert_close(logits[index, where[index]], row, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 1, 0, 2, 0)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_packed(name: str, order: tuple[int, ...], parity_model: Load) -> None:
    rows, expected = recorded(name)
    packed = packed_logits(parity_model(name), [rows[index] for index in order])
    for index, logits in zip(order, packed, strict=True):
        torch.testing.assert_close(logits, expected[index], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", LLADA)
@torch.inference_mode()
def test_long_rows(name: str, parity_model: Load) -> None:
    io = load_file(PARITY / name / "io.safetensors")
    long, tail = io["long_input_ids"][0], io["long_logits_tail"][0]
    model = parity_model(name)
    torch.testing.assert_close(model(long[None]).logits[0, -8:], tail, rtol=0, atol=TOLERANCE)
    rows, expected = recorded(name)
    first, packed, last = packed_logits(model, [rows[0], long, rows[1]])
    torch.testing.assert_close(packed[-8:], tail, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(first, expected[0], rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(last, expected[1], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", NAMES)
def test_the_runner_reads_these_logits(name: str, parity_model: Load) -> None:
    """Token, confidence and P(EOS) of a MASK follow from a plain forward of its row alone."""
    model = parity_model(name)
    random = np.random.default_rng(0)
    params = DecodeParams(initial_length=6, max_new_tokens=6, policy="fixed")
    prompts = [random.integers(4, 80, n).tolist() for n in (3, 11, 1, 7)]
    rows = [Row(Handle(request_for("", prompt, params))) for prompt in prompts]
    predictions = ModelRunner(model, SPECIAL).predict(rows)
    for row, prediction in zip(rows, predictions, strict=True):
        ids = torch.from_numpy(np.concatenate((row.canvas.prompt, row.canvas.cells)))
        with torch.inference_mode():
            probabilities = model(ids[None]).logits[0].softmax(-1)
        read_from = len(row.canvas.prompt) - model.prediction_shift
        expected = probabilities[read_from : read_from + 6]
        assert prediction.eos_probability == pytest.approx(expected[:, SPECIAL.eos].numpy(), 1e-4)
        expected_without_mask = expected.clone()
        expected_without_mask[:, SPECIAL.mask] = 0
        best = expected_without_mask.max(-1)
        assert prediction.token.tolist() == best.indices.tolist()
        assert prediction.confidence == pytest.approx(best.values.numpy(), 1e-4)


def test_dream_is_shifted_and_the_others_are_not(parity_model: Load) -> None:
    shifts = {name: parity_model(name).prediction_shift for name in NAMES}
    assert shifts == {name: int(name == "dream") for name in NAMES}


def test_packing_has_no_padding_and_restarts_positions() -> None:
    mask = SPECIAL.mask
    canvas, both = np.full(2, mask), np.arange(2)
    rows = [RowInput(np.arange(10, 10 + n), canvas, both) for n in (1, 3)]
    batch = pack(rows, shift=0, mask=mask)
    assert batch.input_ids.tolist() == [10, mask, mask, 10, 11, 12, mask, mask]
    assert batch.position_ids.tolist() == [0, 1, 2, 0, 1, 2, 3, 4]
    assert batch.row_lengths == (3, 5)
    assert batch.read_at.tolist() == [1, 2, 6, 7]
    assert batch.cu_seqlens.tolist() == [0, 3, 8]
    assert pack(rows, shift=1, mask=mask).read_at.tolist() == [0, 1, 5, 6]
