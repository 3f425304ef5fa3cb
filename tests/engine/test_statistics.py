"""What a policy may ask of a forward, and what a request may do to its logits and its canvas."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rho_eos import LLM, Canvas, DecodeParams, Needs
from rho_eos.decoding.prediction import Prediction
from rho_eos.engine.request import Handle
from rho_eos.engine.row import Row
from rho_eos.engine.runner import ModelRunner
from tests.reference.bridge import SPECIAL
from tests.reference.cases import SameEverywhere
from tests.reference.random_llada import MASK, random_llada
from tests.requests import request as request_for

LENGTH = {"initial_length": 12, "max_new_tokens": 12}


def row_of(needs: Needs, prompt: list[int], **request: Any) -> Row:
    params = DecodeParams(policy="fixed", **LENGTH)
    row = Row(Handle(request_for("", prompt, params, **request)))
    row.needs = needs
    return row


def predict(model: Any, rows: list[Row], megabytes: int = 64) -> list[Prediction]:
    return ModelRunner(model, SPECIAL, logits_megabytes=megabytes).predict(rows)


@torch.inference_mode()
def test_entropy_and_margin_are_those_of_the_softmax_and_only_for_who_asks() -> None:
    model = random_llada(seed=3, eos_share=0.3, sharpness=2.0)
    prompt = [5, 6, 7, 8]
    kinds = [Needs(), Needs(entropy=True), Needs(margin=True), Needs(entropy=True, margin=True)]
    plain, entropy, margin, both = predict(model, [row_of(needs, prompt) for needs in kinds])
    ids = torch.tensor([prompt + [MASK] * 12])
    probabilities = model(ids).logits[0, 4:].double().softmax(-1)
    expected_entropy = -(probabilities * probabilities.log()).sum(-1).numpy()
    candidates = probabilities.clone()
    candidates[:, MASK] = 0
    best, second = candidates.topk(2).values.unbind(-1)
    assert plain.entropy is None and plain.margin is None
    assert entropy.margin is None and margin.entropy is None
    for seen in (entropy, both):
        np.testing.assert_allclose(seen.entropy, expected_entropy, rtol=1e-4)
    for seen in (margin, both):
        np.testing.assert_allclose(seen.margin, (best - second).numpy(), atol=1e-5)
    for seen in (entropy, margin, both):
        assert seen.token.tolist() == plain.token.tolist()
        assert seen.confidence.tolist() == plain.confidence.tolist()


@pytest.mark.parametrize("megabytes", [1, 64])
def test_processors_change_the_logits_of_their_own_request_at_the_right_places(
    megabytes: int,
) -> None:
    vocabulary = 60_000 if megabytes == 1 else 40
    logits = [0.0] * vocabulary
    logits[6] = 5.0
    seen: list[int] = []
    ids: set[str] = set()

    def favour(id: str, canvas: Canvas, positions: np.ndarray, chunk: torch.Tensor) -> torch.Tensor:
        ids.add(id)
        assert chunk.shape == (len(positions), vocabulary) and canvas.step == 0
        seen.extend(positions.tolist())
        chunk = chunk.clone()
        chunk[torch.from_numpy(positions % 2 == 0), 20] = 50.0
        return chunk

    plain = row_of(Needs(), [5])
    processed = row_of(Needs(), [5], processors=(favour,))
    before, changed, after = predict(
        SameEverywhere(logits), [plain, processed, plain], megabytes=megabytes
    )
    assert changed.token.tolist() == [20, 6] * 6
    assert changed.confidence[0] == pytest.approx(1.0)
    assert before.token.tolist() == after.token.tolist() == [6] * 12
    assert sorted(seen) == list(range(12)) and ids == {processed.id}


def test_a_request_may_start_from_a_canvas(byte_checkpoint: Path) -> None:
    llm = LLM(str(byte_checkpoint))
    mask = llm.special.mask
    given = [70, 71, mask, mask, 72, mask, mask, mask]
    for policy in ("fixed", "rho-eos", "daedal"):
        params = DecodeParams(policy=policy, max_new_tokens=24, early_stop=False)
        request = request_for(
            "", [70], params.replaced(initial_length=8), given, special=llm.special
        )
        [output] = llm.run([request])
        assert output.canvas_token_ids[:2] == [70, 71]
        assert 72 in output.canvas_token_ids
        assert mask not in output.canvas_token_ids
        if policy == "fixed":
            assert len(output.canvas_token_ids) == 8 and output.canvas_token_ids[4] == 72
