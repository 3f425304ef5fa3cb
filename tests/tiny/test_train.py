"""Training end to end, on a model small enough for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rho_eos.base.errors import UserError
from rho_eos.decoding.params import DecodeParams
from rho_eos.embedded.tasks import TASKS
from rho_eos.embedded.tokenizer import build_tokenizer
from rho_eos.llm import LLM
from rho_eos.models.layers.llada import LLaDAForMaskedLM
from tests import forks
from tests.support import wait_until
from training.batches import batches
from training.model import QUICK, new_model
from training.muon import orthogonalised
from training.progress import Sums, draw_curve
from training.rows import RowMaker
from training.train import Trainer, train

STEPS = 40
MINUTES = 0.2


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    return train(tmp_path_factory.mktemp("run"), minutes=5, size=QUICK, steps=STEPS)


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """A checkpoint of some hundred steps, and the loss of each."""
    out, seen, step = tmp_path_factory.mktemp("long"), [], Trainer.train_step

    def recorded(self: Trainer, moment: float) -> Sums:
        sums = step(self, moment)
        seen.append(sums["loss"][0])
        return sums

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "train_step", recorded)
        train(out, minutes=60, size=QUICK, steps=400)
    return out, seen


def losses(trainer: Trainer, steps: int) -> list[float]:
    """Of the next steps."""
    return [trainer.train_step(trainer.step / STEPS)["loss"][0] for _ in range(steps)]


def test_the_loss_falls(long_run: tuple[Path, list[float]]) -> None:
    _, each = long_run
    assert len(each) == 400
    assert sum(each[140:150]) < 0.6 * sum(each[:10])


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


def canvas_loss(model: LLaDAForMaskedLM) -> float:
    """Mean over what new problems of one step ask for, as a decode shows them."""
    maker = RowMaker(build_tokenizer(), np.random.default_rng(7))
    problems = [task.problem(seed, 1) for task in TASKS.values() for seed in range(20)]
    rows = [maker.canvas_row(*maker.encode(problem)) for problem in problems]
    total = asked = 0.0
    with torch.no_grad():
        for batch in batches(rows, 4096, maker.rng):
            output = model(
                batch.ids,
                attention_mask=batch.attention_mask(),
                position_ids=batch.positions,
                labels=batch.targets,
            )
            count = int((batch.targets >= 0).sum())
            total, asked = total + float(output.loss) * count, asked + count
    return total / asked


def test_a_run_by_the_clock_with_a_kill_in_between(tmp_path: Path) -> None:
    """The whole command, killed once it has saved, and run again for the rest of its time."""
    command = ["-m", "training.train", "--out", tmp_path, "--quick"]
    command += ["--minutes", MINUTES, "--save-minutes", MINUTES / 10]
    state = tmp_path / "state.pt"
    first = forks.Fork(*command)
    wait_until(state.exists, 240)
    first.kill()
    first.wait(60)
    step, _, minutes = torch.load(state, weights_only=True)["progress"]
    assert step > 0
    assert minutes < MINUTES
    assert forks.Fork(*command, "--resume").wait(300) == 0
    after = torch.load(state, weights_only=True)["progress"]
    assert after[0] > step
    assert after[2] >= MINUTES
    assert (tmp_path / "curve.png").exists()
    llm = LLM(str(tmp_path), device="cpu")
    untrained = new_model(QUICK, build_tokenizer()).eval()
    # 40 steps are enough for this; the machine decides how many there were. The next test counts.
    assert canvas_loss(llm.model) < 0.7 * canvas_loss(untrained)
    answer = llm.generate("What is (3 + 4)?", DecodeParams(max_new_tokens=64))[0]
    assert answer.usage.n_token > 0


def test_some_hundred_steps_teach_it_what_answers_look_like_and_to_end_them(
    long_run: tuple[Path, list[float]],
) -> None:
    llm = LLM(str(long_run[0]), device="cpu")
    untrained = new_model(QUICK, build_tokenizer()).eval()
    assert canvas_loss(llm.model) < 0.3 * canvas_loss(untrained)
    problems = [task.problem(seed, 1) for task in TASKS.values() for seed in range(5)]
    prompts = ["What is (3 + 4)?", *(problem.prompt for problem in problems)]
    outputs = llm.generate(prompts, DecodeParams(policy="rho-eos"))
    assert sum(output.finish_reason == "stop" for output in outputs) > 15


def test_orthogonalised_matrices_have_singular_values_near_one() -> None:
    torch.manual_seed(0)
    for shape in ((2, 8, 8), (2, 8, 24), (2, 24, 8)):
        values = torch.linalg.svdvals(orthogonalised(torch.randn(shape)))
        assert values.min() > 0.5 and values.max() < 1.5
