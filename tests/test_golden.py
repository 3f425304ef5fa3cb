"""Token for token what the published implementations return, in batches they never saw.

A position whose two best candidates are closer than 1e-5 may fall either way; such an excuse must
be looked up in the model and is printed, never assumed.
"""

import json
from typing import Any

import numpy as np
import pytest
import torch

from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.params import DecodeParams
from rho_eos.engine.runner import ModelRunner
from tests.conftest import DATA, golden_parameters
from tests.scripted import Recorded, RecordingEngine, run_all

SPECIAL = SpecialTokens(mask=3, eos=2)
EXCUSED_GAP = 1e-5
TRACES = [json.loads(line) for line in (DATA / "golden" / "traces.jsonl").read_text().splitlines()]


class NarrowestGap:
    """Per request, how close the two best candidates of any committed position were."""

    def __init__(self, model: Any) -> None:
        self.model = model

    @torch.inference_mode()
    def __call__(self, prompt: list[int], steps: list[Recorded]) -> float:
        return min(self._of_step(prompt, step) for step in steps if step.record.committed)

    def _of_step(self, prompt: list[int], step: Recorded) -> float:
        row = torch.from_numpy(np.concatenate((prompt, step.before)))
        logits = self.model(row[None]).logits[0, len(prompt) :]
        logits[:, SPECIAL.mask] = -torch.inf
        committed = [position for position, _, _ in step.record.committed]
        best = logits.softmax(-1)[committed].topk(2).values
        return float((best[:, 0] - best[:, 1]).min())


@pytest.fixture(scope="module")
def decoded(golden_model: Any) -> tuple[dict[str, list[int]], dict[str, list[Recorded]]]:
    """All requests at once, eight rows per forward: policies and lengths mixed as they come."""
    engine = RecordingEngine(
        ModelRunner(golden_model, SPECIAL), SPECIAL, detokenize=lambda ids: "", max_rows=8
    )
    order = np.random.default_rng(0).permutation(len(TRACES))
    for index in order:
        trace = TRACES[index]
        params = DecodeParams.from_mapping({**golden_parameters(trace), "early_stop": False})
        engine.add(trace["id"], trace["prompt_token_ids"], params)
    cores = torch.get_num_threads()
    torch.set_num_threads(2)  # they share the rows
    outputs = run_all(engine)
    torch.set_num_threads(cores)
    return {id: output.canvas_token_ids for id, output in outputs.items()}, engine.steps


@pytest.mark.parametrize("implementation", ["llada-generate", "daedal", "rho-eos-released"])
def test_canvases_equal_the_published_ones(
    implementation: str,
    decoded: tuple[dict[str, list[int]], dict[str, list[Recorded]]],
    golden_model: Any,
) -> None:
    canvases, steps = decoded
    traces = [trace for trace in TRACES if trace["implementation"] == implementation]
    assert len(traces) >= 60
    excused, wrong = [], []
    for trace in traces:
        id = trace["id"]
        if canvases[id] != trace["canvas_token_ids"]:
            gap = NarrowestGap(golden_model)(trace["prompt_token_ids"], steps[id])
            (excused if gap < EXCUSED_GAP else wrong).append(f"{id} (narrowest gap {gap:.1e})")
    for name in excused:
        print(f"excused: {implementation} {name}")
    assert not wrong
    assert len(excused) <= len(traces) // 50, f"too many near-ties to believe: {excused}"


def test_there_are_all_270() -> None:
    assert len(TRACES) == 270
