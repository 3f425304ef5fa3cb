"""Rollouts for reinforcement learning: groups of samples, rewards, group-relative advantages.

python examples/rollouts.py                   # 64 prompts × 8 samples on the embedded model
python examples/rollouts.py --prompts 8 --n 4 --temperature 1.5
"""

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np

from rho_eos import LLM, DecodeParams, Rollouts, UserError
from rho_eos.evals import find_task

TASK = "tiny-gsm"


def main(words: Sequence[str] | None = None) -> Rollouts:
    parser = argparse.ArgumentParser(description="Roll out groups of samples and rate them.")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--n", type=int, default=8, help="samples of each prompt")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--threshold", type=float, default=0.3, help="τ: higher, they differ less")
    parser.add_argument("--policy", default="scout")
    asked = parser.parse_args(words)

    if asked.prompts < 1:
        parser.error("--prompts takes a number of at least 1")
    task = find_task(TASK)
    samples = task.load(limit=asked.prompts)
    llm = LLM("tiny")
    params = DecodeParams(
        policy=asked.policy, temperature=asked.temperature, threshold=asked.threshold, seed=1
    )
    started = time.perf_counter()
    rollouts = llm.rollout([task.prompt(sample) for sample in samples], params, n=asked.n)
    seconds = time.perf_counter() - started

    rewards = np.array(
        [
            float(task.grade(samples[index // asked.n], text).correct)
            for index, text in enumerate(rollouts.texts)
        ]
    )
    advantages = rollouts.advantages(rewards)
    # What a policy gradient weighs: the log probability of each token when it was committed.
    in_text = np.arange(rollouts.tokens.shape[1]) < rollouts.text_length[:, None]
    log_probability = np.where(rollouts.committed & in_text, np.log(rollouts.probability), 0)
    mean_log = log_probability.sum(axis=1) / np.maximum(1, rollouts.text_length)

    print(f"{'prompt':>6}  {'right':>7}  {'log p':>6}  advantages")
    for group in range(rollouts.prompts):
        own = slice(group * asked.n, (group + 1) * asked.n)
        right = f"{rewards[own].sum():.0f} of {asked.n}"
        shown = " ".join(f"{advantage:+5.2f}" for advantage in advantages[own])
        print(f"{group:>6}  {right:>7}  {mean_log[own].mean():6.2f}  {shown}")
    mixed = np.ptp(rewards.reshape(-1, asked.n), axis=1) > 0
    tokens = int(rollouts.text_length.sum())
    print(
        f"{len(rollouts)} samples, {rewards.mean():.1%} right; {mixed.sum()} of {rollouts.prompts} "
        f"groups have both right and wrong ones.\n"
        f"{tokens} tokens in {seconds:.1f} s: {tokens / seconds:.0f} tokens a second, "
        f"{tokens / rollouts.nfe.sum():.1f} a forward."
    )
    return rollouts


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"rollouts: {error}")
