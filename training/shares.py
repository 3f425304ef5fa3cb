"""What `unsure` says, and what it expects to say: `python -m training.shares FOLDER`.

On held-out problems of each task: the share of right answers, how often each form is given, and the
curve of the first forward on a long canvas, P(EOS) at every position, which is how sure the model
is that the text is over by there. Behind the bare, the brief and the full answer it should be a
third, two thirds and all.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from rho_eos.decoding.params import DecodeParams
from rho_eos.evals.task import find_task
from rho_eos.evals.tasks.embedded import sample_of
from rho_eos.llm import LLM
from rho_problems import TASKS, held_out
from rho_problems.problem import Problem
from training.forms import FORMS, forms
from training.rows import RowMaker


def form_of(problem: Problem, text: str) -> int:
    """The form that the text begins like for longest."""
    alike = [
        takewhile(lambda pair: pair[0] == pair[1], zip(text, f, strict=False))
        for f in forms(problem)
    ]
    return int(np.argmax([len([*each]) for each in alike]))


def is_right(problem: Problem, text: str) -> bool:
    """By the task's grader, but what is known to be right is not run."""
    known = text.rstrip() in forms(problem)
    task = find_task(problem.id.split("/")[0])
    return known or task.grade(sample_of(problem), text).correct


@torch.no_grad()
def curves(llm: LLM, prompts: Sequence[np.ndarray], length: int) -> list[np.ndarray]:
    """P(EOS) over an empty canvas of this length behind each prompt."""
    found = []
    for prompt in prompts:
        config = llm.model.config
        ids = np.concatenate([prompt, np.full(length, config.mask_token_id)])
        shares = llm.model(torch.from_numpy(ids)[None]).logits[0, len(prompt) :].softmax(-1)
        found.append(shares[:, config.eos_token_id].numpy())
    return found


def quantile(curve: np.ndarray, share: float) -> int:
    """The first position from where on the curve, made monotone, is above the share."""
    return int(np.argmax(np.append(np.maximum.accumulate(curve) >= share, True)))


def main(
    folder: Annotated[Path, typer.Argument(help="a checkpoint")],
    limit: Annotated[int, typer.Option(help="problems per task")] = 200,
    length: Annotated[int, typer.Option(help="of the canvas")] = 512,
    block_length: Annotated[int, typer.Option(help="what decoding fills at a time")] = 8,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token")] = 0.0,
    threshold: Annotated[float, typer.Option(help="what is surer is committed at once")] = 0.9,
    tie: Annotated[float, typer.Option(help="1: else what comes first, 0: the surest")] = 0.0,
) -> None:
    """Print accuracy, shares of the forms and the first curve of a model trained as `unsure` is."""
    llm = LLM(str(folder), device="cpu")
    params = DecodeParams(
        policy="fixed",
        initial_length=length,
        max_new_tokens=length,
        block_length=block_length,
        temperature=temperature,
        threshold=threshold,
        tie=tie,
        seed=1,
    )
    maker = RowMaker(llm.tokenizer, np.random.default_rng())
    for name in TASKS:
        problems = held_out(name, limit)
        texts = [output.text for output in llm.generate([p.prompt for p in problems], params)]
        right = [is_right(problem, text) for problem, text in zip(problems, texts, strict=True)]
        given = [form_of(problem, text) for problem, text in zip(problems, texts, strict=True)]
        shares = np.bincount(given, minlength=len(FORMS)) / limit
        prompts = [maker.encode_prompt(problem.prompt) for problem in problems]
        each = curves(llm, prompts, length)
        spread = [(quantile(c, 0.9) + 1) / (quantile(c, 0.1) + 1) for c in each]
        lengths = [[len(maker.encode_text(text)) for text in forms(p)] for p in problems]
        # In the middle between the end of a form and of the next longer one, and behind the last.
        levels = np.mean(
            [
                [curve[(bare + brief) // 2], curve[(brief + full) // 2], curve[full + 1]]
                for curve, (full, brief, bare) in zip(each, lengths, strict=True)
            ],
            axis=0,
        )
        print(
            f"{name}: {np.mean(right):.1%} right;",
            ", ".join(f"{form} {share:.1%}" for form, share in zip(FORMS, shares, strict=True)),
            f"; curve {levels.round(2)}; 90% over 10% of it {np.median(spread):.2f} in the middle,",
            f"at least 2 on {np.mean(np.array(spread) >= 2):.0%}",
            flush=True,
        )


if __name__ == "__main__":
    typer.run(main)
