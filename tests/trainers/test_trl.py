"""TRL's own trainer with our rollouts, at the size of a CPU."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from rho_eos import LLM
from tests.support import require

PROMPTS = ["2 + 2", "Ann has 3 eggs. 1) eats 1."]
LIMITS: dict[str, Any] = {
    "initial_length": 16,
    "max_new_tokens": 32,
    "temperature": 1.5,
    "threshold": 0.3,
}


@pytest.fixture(autouse=True)
def _trl(monkeypatch: pytest.MonkeyPatch) -> None:
    require(importlib.util.find_spec("trl") is not None, "trl is not installed")
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")


def trainer_of(llm: LLM, model: Any, folder: Path, rewarded: list[Any]) -> Any:
    from datasets import Dataset
    from trl import GRPOConfig

    from rho_eos.trainers.trl import MaskedDiffusionGRPOTrainer, rollout_func

    def reward(completions: list[str], **fields: Any) -> list[float]:
        rewarded.append((completions, fields))
        return [float(index % 2) for index in range(len(completions))]

    settings = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        num_generations=2,
        max_steps=2,
        learning_rate=1e-3,
        report_to=[],
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        disable_tqdm=True,
    )
    return MaskedDiffusionGRPOTrainer(
        model,
        args=settings,
        reward_funcs=reward,
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in PROMPTS]),
        processing_class=llm.tokenizer,
        rollout_func=rollout_func(llm, LIMITS),
        mask_token_id=llm.special.mask,
    )


def test_trl_trains_the_model_that_rolls_out(tmp_path: Path) -> None:
    llm, rewarded = LLM("tiny"), []
    model = llm.model.requires_grad_(True)
    before = model.lm_head.weight.detach().clone()
    trainer_of(llm, model, tmp_path, rewarded).train()
    assert not torch.equal(model.lm_head.weight, before)
    assert [len(completions) for completions, _ in rewarded] == [4, 4]
    [(texts, fields), _] = rewarded
    assert fields["weights_version"] == [0] * 4 and min(fields["nfe"]) > 0
    for prompt, text, ids in zip(fields["prompts"], texts, fields["completion_ids"], strict=True):
        assert prompt in PROMPTS and llm.tokenizer.decode(ids, skip_special_tokens=True) == text


def test_a_trainers_own_model_hands_its_weights_over(tmp_path: Path) -> None:
    llm, trained, rewarded = LLM("tiny"), LLM("tiny").model.requires_grad_(True), []
    trainer = trainer_of(llm, trained, tmp_path, rewarded)
    trainer.train()
    versions = [fields["weights_version"][0] for _, fields in rewarded]
    assert versions == [1, 2]
    trainer.rollout_func(PROMPTS, trainer)
    own = llm.model.state_dict()
    assert all(torch.equal(own[name], weight) for name, weight in trained.state_dict().items())


def test_log_probabilities_are_those_of_one_forward_of_masks(tmp_path: Path) -> None:
    from rho_eos.rollouts.estimators import one_step

    llm = LLM("tiny")
    trainer = trainer_of(llm, llm.model.requires_grad_(True), tmp_path, [])
    rolled = llm.rollout(PROMPTS, {**LIMITS, "policy": "fixed", "max_new_tokens": 16}, n=1)
    [batch] = rolled.batches(2)
    expected = one_step(llm.model, batch).logprobs
    for s, (prompt, length) in enumerate(zip(batch.prompt_length, batch.length, strict=True)):
        ids = batch.ids[s : s + 1, : prompt + length]
        padded = torch.cat((torch.ones(1, 3, dtype=torch.int64), ids), 1)  # TRL pads to the left
        seen = torch.ones_like(padded)
        seen[:, :3] = 0
        found, entropies, _ = trainer._get_per_token_logps_and_entropies(
            llm.model, padded, seen, int(length), compute_entropy=True
        )
        own = batch.scored[s, :length]
        torch.testing.assert_close(found[0][own], expected[s, :length][own], atol=1e-3, rtol=1e-3)
        assert entropies is not None and (entropies >= 0).all()
