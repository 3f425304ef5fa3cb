"""`trace="positions"`: what the model said at every MASK, against the logits themselves."""

from pathlib import Path

import numpy as np
import pytest
import torch

from rho_eos import LLM
from rho_eos.decoding.canvas import Canvas


@pytest.mark.parametrize("how", [{}, {"policy": "fixed", "cache": "window", "cache_steps": 3}])
def test_the_frame_holds_what_was_predicted_at_every_open_mask(
    how: dict[str, object], byte_checkpoint: Path
) -> None:
    llm = LLM(str(byte_checkpoint))
    seen: dict[tuple[int, int], torch.Tensor] = {}

    def watch(id: str, canvas: Canvas, positions: np.ndarray, logits: torch.Tensor) -> torch.Tensor:
        for at, each in zip(positions.tolist(), logits.clone(), strict=True):
            seen[canvas.step, at] = each.softmax(-1)
        return logits

    lengths = {"initial_length": 8, "max_new_tokens": 16}
    [output] = llm.generate("abc", trace="positions", processors=[watch], **lengths, **how)
    frame = output.positions()
    assert {len(column) for column in frame.values()} == {len(seen)}
    for step, at, token, confidence, p_eos in zip(
        *(frame[name] for name in ("step", "position", "token", "confidence", "p_eos")), strict=True
    ):
        assert confidence == pytest.approx(float(seen[step, at][token]), abs=1e-6)
        assert p_eos == pytest.approx(float(seen[step, at][llm.special.eos]), abs=1e-6)
    written = {(record.step, at) for record in output.trace for at, _, _ in record.committed}
    said = zip(frame["step"], frame["position"], frame["committed"], strict=True)
    assert {(step, at) for step, at, committed in said if committed} == written
    [plain] = llm.generate("abc", trace=True, **lengths, **how)
    assert plain.text == output.text and not any(plain.positions().values())
    assert "open" not in plain.as_dict()["trace"][0] and "open" in output.as_dict()["trace"][0]
