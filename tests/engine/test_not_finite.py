"""Logits that are NaN or infinite end their own row, with a sentence; JSON never holds them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rho_eos import LLM, DecodeParams
from rho_eos.decoding.canvas import Canvas
from rho_eos.decoding.policy import Policy, Step
from rho_eos.decoding.prediction import Prediction
from rho_eos.decoding.registry import POLICIES, register_policy
from rho_eos.engine.errors import RequestFailedError
from rho_eos.engine.scoring import Masked, score
from rho_eos.text.ask import Ask
from tests import forks
from tests.checkpoints import write_checkpoint
from tests.requests import request as request_for
from tests.scripted import encode, engine_of, run_all, says
from tests.server.clients import events

PARAMS = {"initial_length": 16, "max_new_tokens": 24}
SENTENCE = "the model failed: its logits are NaN or infinite"


@pytest.fixture(scope="module")
def llm(byte_checkpoint: Path) -> LLM:
    return LLM(str(byte_checkpoint))


def spoiled(value: float) -> Any:
    def processor(
        _id: str, canvas: Canvas, positions: np.ndarray, logits: torch.Tensor
    ) -> torch.Tensor:
        logits[:, 20] = value
        return logits

    return processor


def only_mask(
    _id: str, canvas: Canvas, positions: np.ndarray, logits: torch.Tensor
) -> torch.Tensor:
    logits[:] = -torch.inf
    logits[:, 2] = 1.0
    return logits


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "processor",
    [spoiled(torch.nan), spoiled(torch.inf), only_mask],
    ids=["nan", "inf", "nothing to choose"],
)
def test_a_row_ends_with_a_sentence_and_its_mates_go_on(
    llm: LLM, processor: Any, temperature: float
) -> None:
    params = DecodeParams(temperature=temperature, top_k=50, **PARAMS)
    prompts = llm.preparer.prepare(Ask("question", params, n=8))
    want = llm.engine.finish([llm.engine.submit(request) for request in prompts])
    bad = request_for("bad", prompts[0].canvas.prompt.tolist(), params, processors=(processor,))
    handles = [llm.engine.submit(request) for request in (*prompts[:4], bad, *prompts[4:])]
    while llm.engine.has_work:
        llm.engine.step()
    culprit = handles.pop(4)
    with pytest.raises(RequestFailedError, match=SENTENCE):
        culprit.result()
    assert [handle.result().text for handle in handles] == [output.text for output in want]


@pytest.fixture(scope="module")
def nan_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_checkpoint(tmp_path_factory.mktemp("nan"))
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if "ff_out" in name or "lm_head" in name)
    weights[name][0, 0] = torch.nan
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_weights_with_nan_are_no_empty_text_with_exit_code_0(nan_checkpoint: Path) -> None:
    command = ["-m", "rho_eos", "generate", "hello", "--model", nan_checkpoint]
    done = forks.run(*command, "--max-new-tokens", "16")
    assert done.returncode == 1
    assert done.stdout == ""
    assert SENTENCE in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr


def test_likelihoods_are_not_nan_either(nan_checkpoint: Path) -> None:
    llm = LLM(str(nan_checkpoint))
    answer = np.array([10, 11])
    with pytest.raises(RequestFailedError, match="NaN"):
        score(llm.runner, [Masked(np.array([9]), answer, np.array([True, True]))])


@pytest.mark.parametrize("signal", [float("nan"), float("inf"), np.float32("nan"), np.float32(0.5)])
def test_a_signal_of_any_number_is_json(signal: float) -> None:
    """Other people's policies say what they like."""

    class Odd(Policy):
        name = "odd-signal"

        def step(self, canvas: Canvas, prediction: Prediction, commit: np.ndarray) -> Step:
            return Step(signal=signal, commit=canvas.masked)

    register_policy(Odd)
    try:
        engine = engine_of(says("ok"))
        engine.add("only", encode("?"), DecodeParams(policy="odd-signal", trace=True))
        line = run_all(engine)["only"].as_dict()
    finally:
        POLICIES.remove("odd-signal")
    want = 0.5 if np.isfinite(signal) else None
    assert json.loads(json.dumps(line, allow_nan=False))["trace"][0]["signal"] == want


def test_streams_refuse_to_send_what_is_no_json() -> None:
    from rho_eos.server.stream import _encode

    assert events(_encode({"number": 0.5}).decode()) == [{"number": 0.5}]
    with pytest.raises(ValueError, match="JSON"):
        _encode({"number": float("nan")})
