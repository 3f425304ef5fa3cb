"""Training end to end, on a model small enough for it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from rho_eos.config import DecodeParams
from rho_eos.errors import UserError
from rho_eos.llm import LLM
from rho_eos.tiny.model import QUICK
from rho_eos.tiny.muon import orthogonalised
from rho_eos.tiny.train import Trainer, draw_curve, train

STEPS = 40


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    torch.set_num_threads(1)
    return train(tmp_path_factory.mktemp("run"), minutes=5, size=QUICK, steps=STEPS)


def losses(trainer: Trainer, steps: int, of: int = STEPS) -> list[float]:
    """Of the next steps, in a schedule of so many."""
    return [trainer.train_step(trainer.step / of)["loss"][0] for _ in range(steps)]


def test_the_loss_falls(tmp_path: Path) -> None:
    first = losses(Trainer(tmp_path, QUICK, seed=1), 150, of=500)
    assert sum(first[-10:]) < 0.6 * sum(first[:10])


def test_the_same_seed_trains_the_same_model(tmp_path: Path) -> None:
    one, two = (Trainer(tmp_path, QUICK, seed=3) for _ in range(2))
    assert losses(one, 3) == pytest.approx(losses(two, 3), rel=1e-4)


def test_the_checkpoint_loads_in_the_engine(run: Trainer) -> None:
    llm = LLM(str(run.out), device="cpu")
    outputs = llm.generate(
        ["What is (3 + 4)?"], DecodeParams(policy="fixed", initial_length=16, trace=True)
    )
    assert outputs[0].usage.n_token == 16


def test_a_run_is_taken_up_where_it_was_saved(run: Trainer) -> None:
    again = Trainer(run.out, QUICK, seed=1)
    again.load()
    assert (again.step, again.minutes) == (STEPS, run.minutes)
    for (name, trained), loaded in zip(
        run.model.named_parameters(), again.model.parameters(), strict=True
    ):
        assert torch.equal(trained, loaded), name
    longer = train(run.out, minutes=5, size=QUICK, steps=STEPS + 5, resume=True)
    assert longer.step == STEPS + 5


def test_a_curve_is_drawn(run: Trainer, tmp_path: Path) -> None:
    record = {"minutes": 1.0, "loss": 2.0, "canvas/tiny-gsm": 0.5}
    draw_curve([record, *run.history], tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 5000


def test_resuming_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing to resume"):
        Trainer(tmp_path, QUICK, seed=1).load()


def test_a_killed_run_resumes(tmp_path: Path) -> None:
    """The whole command, killed once it has saved, and run again."""
    command = [sys.executable, "-m", "rho_eos.tiny.train", "--out", str(tmp_path), "--quick"]
    first = subprocess.Popen([*command, "--minutes", "30", "--save-minutes", "0.02"])
    state = tmp_path / "state.pt"
    deadline = time.monotonic() + 240
    while not state.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    first.kill()
    first.wait()
    step, _, minutes = torch.load(state, weights_only=True)["progress"]
    assert step > 0
    subprocess.run([*command, "--minutes", f"{minutes + 0.02}", "--resume"], check=True)
    assert torch.load(state, weights_only=True)["progress"][0] > step
    assert (tmp_path / "model.safetensors").exists()
    assert (tmp_path / "curve.png").exists()


def test_orthogonalised_matrices_have_singular_values_near_one() -> None:
    torch.manual_seed(0)
    for shape in ((2, 8, 8), (2, 8, 24), (2, 24, 8)):
        values = torch.linalg.svdvals(orthogonalised(torch.randn(shape)))
        assert values.min() > 0.5 and values.max() < 1.5
