"""Group-relative policy optimisation (GRPO) of an embedded model, with the engine's own rollouts.

`terse` gives a short and often wrong answer where its canvas is short. Here it is trained to solve
word problems from a short canvas that may grow, and beside it a second copy with rollouts at the
fixed length that suits all of its answers. The two take turns until each has had its share of
processor time, so that what else the machine does hurts both alike.

python examples/grpo.py --out grpo          # both, 15 minutes of one core each; again: it goes on
python examples/grpo.py --out grpo --minutes 1 --prompts 4 --test 10
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rho_eos import LLM, DecodeParams, UserError
from rho_eos.evals import find_task
from rho_eos.rollouts.estimators import trajectory
from rho_problems import TASKS

MODEL, TASK = "terse", "tiny-gsm"
FIRST_TRAINING_SEED = 1_000_000  # problems of the training split; tests have others
#: How each run samples while it trains. Lengths: a short one that may grow, and one that suits all.
SAMPLED = {"temperature": 1.0, "threshold": 0.3}
RUNS: dict[str, dict[str, Any]] = {
    # A policy that unlearns to end makes its canvases longer and longer, hence the low limit.
    "variable": {"policy": "rho-eos", "initial_length": 48, "max_new_tokens": 192, **SAMPLED},
    "fixed": {"policy": "fixed", "initial_length": 512, "max_new_tokens": 512, **SAMPLED},
}
#: How both are tested: greedily, from the short canvas.
TESTED = DecodeParams(policy="rho-eos", initial_length=48, max_new_tokens=512, threshold=0.9)
CLIP = 0.2  # of the ratio of new to old probabilities


@dataclass
class Run:
    """A copy of the model that is trained, and what has happened to it so far."""

    name: str
    asked: argparse.Namespace
    llm: LLM = field(init=False)
    optimizer: torch.optim.Optimizer = field(init=False)
    step: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: {"rollout": 0.0, "train": 0.0})
    log: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.llm = LLM(MODEL)
        weights = self.llm.model.requires_grad_(True).parameters()
        self.optimizer = torch.optim.AdamW(
            weights, lr=self.asked.rate, betas=(0.9, 0.99), weight_decay=0.0
        )

    @property
    def spent(self) -> float:
        return sum(self.seconds.values())

    def take_step(self) -> None:
        """Roll out, rate, and move the weights once."""
        first = FIRST_TRAINING_SEED + self.step * self.asked.prompts
        problems = [TASKS[TASK].problem(first + i) for i in range(self.asked.prompts)]
        params = DecodeParams(**RUNS[self.name], seed=self.step * self.asked.n)
        before = time.process_time()
        rollouts = self.llm.rollout(
            [problem.prompt for problem in problems], params, n=self.asked.n, trajectory=True
        )
        rolled = time.process_time()
        rewards = [
            float(is_right(problems[s // self.asked.n].answer, text))
            for s, text in enumerate(rollouts.texts)
        ]
        advantages = torch.from_numpy(rollouts.advantages(rewards)).float()
        tokens = float(rollouts.text_length.sum())
        for batch in rollouts.batches(self.asked.n):
            own = advantages[batch.index]
            if not own.any():
                continue  # all right or all wrong: nothing to learn from this group
            new = trajectory(self.llm.model, batch, forwards=self.asked.forwards, seed=self.step)
            ratio = (new.logprobs - batch.old_logprobs).clamp(-20, 20).exp()
            gain = torch.minimum(
                ratio * own[:, None], ratio.clamp(1 - CLIP, 1 + CLIP) * own[:, None]
            )
            (-(gain * new.weight * batch.scored).sum() / tokens).backward()
        torch.nn.utils.clip_grad_norm_(self.llm.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.seconds["rollout"] += rolled - before
        self.seconds["train"] += time.process_time() - rolled
        self.step += 1
        self.log.append(
            {
                "step": self.step,
                "seconds": self.spent,
                "rollout_seconds": self.seconds["rollout"],
                "reward": float(np.mean(rewards)),
                "samples": len(rollouts),
                "positions": int(rollouts.positions_evaluated.sum()),
                "forwards": int(rollouts.nfe.sum()),
                "tokens": int(tokens),
            }
        )

    def state(self) -> dict[str, Any]:
        return {
            "model": self.llm.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
            "log": self.log,
        }

    def load(self, state: dict[str, Any]) -> None:
        self.llm.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.seconds, self.log = state["step"], state["seconds"], state["log"]


def is_right(answer: str, text: str) -> bool:
    """Whether a text ends with the result that the answer ends with."""
    result = answer.rpartition("####")[2].strip()
    return "####" in text and text.rpartition("####")[2].strip() == result


def accuracy(llm: LLM, name: str, count: int) -> float:
    """The share of held-out problems that are solved from a short canvas."""
    task = find_task(name)
    samples = task.load(limit=count)
    outputs = llm.generate([task.prompt(sample) for sample in samples], TESTED)
    return float(
        np.mean(
            [
                task.grade(sample, output.text).correct
                for sample, output in zip(samples, outputs, strict=True)
            ]
        )
    )


def main(words: Sequence[str] | None = None) -> dict[str, Run]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder; a run in it goes on")
    parser.add_argument("--minutes", type=float, default=15.0, help="of one core, for each run")
    parser.add_argument("--prompts", type=int, default=8, help="groups in a step")
    parser.add_argument("--n", type=int, default=8, help="samples in a group")
    parser.add_argument("--forwards", type=int, default=4, help="of each sample made again")
    parser.add_argument("--rate", type=float, default=1e-4, help="learning rate")
    parser.add_argument("--test", type=int, default=100, help="held-out problems of each task")
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=[*RUNS])
    asked = parser.parse_args(words)
    torch.set_num_threads(1)
    asked.out.mkdir(parents=True, exist_ok=True)
    kept = asked.out / "state.pt"
    runs = {name: Run(name, asked) for name in asked.runs}
    if kept.exists():
        for name, state in torch.load(kept, weights_only=True).items():
            if name in runs:
                runs[name].load(state)
    while behind := [run for run in runs.values() if run.spent < asked.minutes * 60]:
        run = min(behind, key=lambda run: run.spent)
        run.take_step()
        last = run.log[-1]
        print(
            f"{run.name:>8} step {run.step:>3}, {run.spent / 60:5.2f} min: reward "
            f"{last['reward']:.2f}, {last['positions'] / last['samples']:.0f} positions a sample",
            flush=True,
        )
        part = kept.with_suffix(".part")
        torch.save({name: run.state() for name, run in runs.items()}, part)
        part.replace(kept)
    report(runs, asked)
    return runs


def report(runs: dict[str, Run], asked: argparse.Namespace) -> None:
    """Accuracy on held-out problems before and after, speed, and the curve."""
    before = LLM(MODEL)
    table: dict[str, Any] = {"before": {task: accuracy(before, task, asked.test) for task in TASKS}}
    for name, run in runs.items():
        samples = sum(entry["samples"] for entry in run.log)
        table[name] = {
            **{task: accuracy(run.llm, task, asked.test) for task in TASKS},
            "steps": run.step,
            "samples_per_second": samples / run.seconds["rollout"],
            "positions_per_sample": sum(entry["positions"] for entry in run.log) / samples,
            "reward_first_5": float(np.mean([entry["reward"] for entry in run.log[:5]])),
            "reward_last_5": float(np.mean([entry["reward"] for entry in run.log[-5:]])),
        }
    (asked.out / "figures.json").write_text(json.dumps(table, indent=2) + "\n")
    print(json.dumps(table, indent=1))
    draw(runs, asked.out / "grpo.png")


def draw(runs: dict[str, Run], path: Path) -> None:
    """Reward of the rollouts over processor time; needs the extra `plots`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, run in runs.items():
        minutes = [entry["seconds"] / 60 for entry in run.log]
        rewards = np.array([entry["reward"] for entry in run.log])
        width = min(5, len(rewards))
        smooth = np.convolve(rewards, np.ones(width) / width, "valid")
        [line] = axes.plot(minutes[width - 1 :], smooth, label=f"{name} length")
        axes.plot(minutes, rewards, ".", color=line.get_color(), alpha=0.4)
    axes.set_xlabel("minutes of one core")
    axes.set_ylabel("share of samples that are right")
    axes.set_ylim(0, 1)
    axes.legend()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"grpo: {error}")
