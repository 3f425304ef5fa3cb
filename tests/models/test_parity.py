"""Logits equal to those of the families' own code, alone and packed, and near them in bfloat16."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AttentionInterface, AutoModelForMaskedLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from rho_eos.decoding.params import DecodeParams
from rho_eos.engine.request import Handle
from rho_eos.engine.row import Row
from rho_eos.engine.runner import ModelRunner
from rho_eos.models.families.llada import LLaDAConfig
from rho_eos.models.layers.llada import LLaDAForMaskedLM
from tests.conftest import DATA
from tests.models.parity import (
    BLOCKS,
    EVERY,
    FAMILY,
    NAMES,
    PARITY,
    in_blocks,
    packed_logits,
    recorded,
)
from tests.reference.bridge import SPECIAL
from tests.requests import request as request_for

LLADA = [name for name in NAMES if FAMILY[name] == "llada"]
TOLERANCE = 1e-4

Load = Callable[[str], Any]


@pytest.mark.parametrize("name", EVERY)
@torch.inference_mode()
def test_only_what_is_read_is_returned_and_is_the_same(name: str, parity_model: Load) -> None:
    model = parity_model(name)
    rows, expected = recorded(name)
    read_at = torch.tensor([len(rows[0]) - 1, 0, 2])
    hidden = model.model(rows[0][None], read_at=read_at, **in_blocks(name, 0)).last_hidden_state
    assert hidden.shape[1] == 3
    assert (model.lm_head(hidden)[0] - expected[0][read_at]).abs().max() <= TOLERANCE


@pytest.mark.parametrize("name", EVERY)
@torch.inference_mode()
def test_alone(name: str, parity_model: Load) -> None:
    rows, expected = recorded(name)
    for index, (row, logits) in enumerate(zip(rows, expected, strict=True)):
        found = parity_model(name)(row[None], **in_blocks(name, index)).logits[0]
        torch.testing.assert_close(found, logits, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", EVERY)
@torch.inference_mode()
def test_padded(name: str, side: str, parity_model: Load) -> None:
    """A 2D attention mask, as any transformers model takes it, with positions and without."""
    rows, expected = recorded(name)
    width = max(map(len, rows)) + 2
    ids = torch.full((len(rows), width), 2)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    where = [slice(width - len(r), width) if side == "left" else slice(0, len(r)) for r in rows]
    for index, row in enumerate(rows):
        ids[index, where[index]] = row
        mask[index, where[index]] = 1
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    told = in_blocks(name, *range(len(rows)))
    for given in (positions, None):
        logits = parity_model(name)(ids, attention_mask=mask, position_ids=given, **told).logits
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


def test_two_families_are_shifted_and_the_others_are_not(parity_model: Load) -> None:
    shifted = {name for name in EVERY if parity_model(name).prediction_shift == 1}
    assert shifted == {"dream", "fast-dllm-v2"}
    assert {parity_model(name).prediction_shift for name in EVERY} == {0, 1}


#: Root of the mean squared difference, as a share of how far logits are spread. One rounding to
#: bfloat16 is off by up to 2^-9 = 0.2%; some ten of them in each of three layers, added up at
#: random, make about 1% (2.7% is the most that is measured, 1% the rule). A position that is routed
#: to another expert, because two were almost equal, is off by more than any rounding.
DENSE, WITH_EXPERTS = 0.04, 0.06


@cache
def half(name: str) -> Any:
    folder = DATA / "parity" / name
    return AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.bfloat16).eval()


def off(logits: torch.Tensor, expected: torch.Tensor) -> float:
    assert logits.dtype == torch.bfloat16
    return ((logits.float() - expected).square().mean().sqrt() / expected.std()).item()


@pytest.mark.parametrize("name", NAMES)
@torch.inference_mode()
def test_logits_are_near_those_in_float32(name: str) -> None:
    rows, expected = recorded(name)
    allowed = WITH_EXPERTS if FAMILY[name] == "llada-moe" else DENSE
    for row, logits in zip(rows, expected, strict=True):
        assert off(half(name)(row[None]).logits[0], logits) < allowed
    for packed, logits in zip(packed_logits(half(name), rows), expected, strict=True):
        assert off(packed, logits) < allowed


@pytest.mark.parametrize("name", BLOCKS)
@torch.inference_mode()
def test_the_same_in_blocks(name: str) -> None:
    """With experts half of the positions count: rows are long, so some are routed elsewhere."""
    rows, expected = recorded(name)
    for index, (row, logits) in enumerate(zip(rows, expected, strict=True)):
        found = half(name)(row[None], **in_blocks(name, index)).logits[0]
        if FAMILY[name].endswith("moe"):
            each = (found.float() - logits).square().mean(-1).sqrt() / logits.std()
            assert each.median().item() < WITH_EXPERTS
        else:
            assert off(found, logits) < DENSE


@pytest.mark.parametrize("name", EVERY)
def test_a_model_that_is_cast_later_keeps_its_frequencies(name: str) -> None:
    model = AutoModelForMaskedLM.from_pretrained(DATA / "parity" / name, dtype=torch.float32)
    before = model.model.rotary_emb.inv_freq.clone()
    model = model.to(torch.bfloat16)
    assert model.lm_head.weight.dtype == torch.bfloat16
    torch.testing.assert_close(model.model.rotary_emb.inv_freq, before, rtol=0, atol=0)


@pytest.mark.parametrize("full", [True, False])
@torch.inference_mode()
def test_llada_rotates_in_float32_where_its_config_says_so(full: bool) -> None:
    """Queries and keys as they reach attention, beside a rotation written out in float32."""
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def recording(module: Any, query: Any, key: Any, value: Any, *rest: Any, **kwargs: Any) -> Any:
        seen.append((query, key))
        return sdpa_attention_forward(module, query, key, value, *rest, **kwargs)

    AttentionInterface.register("recording", recording)
    torch.manual_seed(0)
    sizes = {"d_model": 64, "n_layers": 1, "n_heads": 2, "mlp_hidden_size": 64, "vocab_size": 40}
    config = LLaDAConfig(**sizes, init_std=0.5, rope_full_precision=full)
    model = LLaDAForMaskedLM(config).to(torch.bfloat16).eval()
    model.set_attn_implementation("recording")
    ids = torch.randint(4, 40, (1, 900))
    model(ids)

    layer = model.model.layers[0]
    hidden = layer.input_layernorm(model.model.embed_tokens(ids))
    angle = torch.arange(900.0)[:, None] * 500000.0 ** -(torch.arange(0, 32, 2) / 32)
    cos, sin = angle.cos(), angle.sin()
    for got, projection in zip(
        seen[0], (layer.self_attn.q_proj, layer.self_attn.k_proj), strict=True
    ):
        heads = projection(hidden).view(900, 2, 32).transpose(0, 1).float()
        left, right = heads.chunk(2, dim=-1)
        exact = torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)
        assert got.dtype == torch.bfloat16
        # Where the rotation is in float32, all that is left is to round its result.
        same = (got[0] == exact.bfloat16()).float().mean().item()
        assert same > 0.99 if full else same < 0.9
