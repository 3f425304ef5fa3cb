"""Training end to end, on a model small enough for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rho_eos.base.errors import UserError
from rho_eos.decoding.params import DecodeParams
from rho_eos.llm import LLM
from rho_eos.models.layers.llada import LLaDAForMaskedLM
from rho_problems import TASKS
from rho_problems.tokenizer import build_tokenizer
from tests import forks
from tests.support import wait_until
from training.batches import batches
from training.model import QUICK, new_model
from training.rows import RowMaker
from training.train import Trainer, train

STEPS = 40
MINUTES = 0.2


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    return train(tmp_path_factory.mktemp("run"), minutes=5, size=QUICK, steps=STEPS)


def test_a_run_is_taken_up_where_it_was_saved(run: Trainer, tmp_path: Path) -> None:
    again = Trainer(run.out, QUICK, seed=1)
    again.load()
    assert (again.step, again.minutes) == (STEPS, run.minutes)
    for (name, trained), loaded in zip(
        run.model.named_parameters(), again.model.parameters(), strict=True
    ):
        assert torch.equal(trained, loaded), name
    longer = train(run.out, minutes=5, size=QUICK, steps=STEPS + 5, resume=True)
    assert longer.step == STEPS + 5
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
    tmp_path: Path,
) -> None:
    train(tmp_path, minutes=60, size=QUICK, steps=400)
    llm = LLM(str(tmp_path), device="cpu")
    untrained = new_model(QUICK, build_tokenizer()).eval()
    assert canvas_loss(llm.model) < 0.3 * canvas_loss(untrained)
    problems = [task.problem(seed, 1) for task in TASKS.values() for seed in range(5)]
    prompts = ["What is (3 + 4)?", *(problem.prompt for problem in problems)]
    outputs = llm.generate(prompts, DecodeParams(policy="rho-eos"))
    assert sum(output.finish_reason == "stop" for output in outputs) > 15
