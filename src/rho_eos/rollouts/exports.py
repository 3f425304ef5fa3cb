"""Samples in the forms that other people's trainers read: one function each.

A response is the text and the first end behind it, if the sample has one (`Rollouts.scored`).
"""

from typing import Any

import numpy as np
import torch

from rho_eos.base.errors import UserError
from rho_eos.rollouts.arrays import Rollouts


def step_map(rollouts: Rollouts) -> list[list[int]]:
    """For each token of each response, the step that wrote it, counted from 1.

    It is `step_map` of dLLM-RL (TraceRL) and of LMDeploy's pull request 4057, and `step_maps` of
    SGLang's 27943. Steps are those of the whole canvas; 0 stands for a token that an edit of the
    policy wrote and the model did not.
    """
    return [
        (step[scored] + 1).tolist()
        for step, scored in zip(rollouts.step, rollouts.scored, strict=True)
    ]


def unmasked_backwards(rollouts: Rollouts) -> list[list[list[int]]]:
    """For each step of each sample, the last one first, the places of the tokens it wrote.

    Places are those on the final canvas. To mask them again one list after the other leads back
    from the sample to the canvas of MASKs, as replays from the end do. A step that wrote nothing
    that is still there has an empty list. This follows no published format.
    """
    return [
        [np.flatnonzero(step == k).tolist() for k in range(int(nfe) - 1, -1, -1)]
        for step, nfe in zip(rollouts.step, rollouts.nfe, strict=True)
    ]


def fixed_length(rollouts: Rollouts, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(S, length) int64 responses, and (S, length) bool, where they are real.

    Behind a response comes EOS up to `length`, as LLaDA was trained and d1 expects it. A response
    that is longer is refused, because a cut one is another answer than the one that was rated.
    """
    longest = int(rollouts.scored.sum(axis=1).max(initial=0))
    if isinstance(length, bool) or not isinstance(length, int) or length < longest:
        raise UserError(
            f"length is {length!r}, but takes an integer from {longest}, which the longest "
            "response has"
        )
    scored = np.zeros((len(rollouts), length), dtype=bool)
    tokens = np.full((len(rollouts), length), rollouts.special.eos)
    for s, own in enumerate(rollouts.scored):
        count = int(own.sum())
        scored[s, :count] = True
        tokens[s, :count] = rollouts.tokens[s, :count]
    return torch.from_numpy(tokens), torch.from_numpy(scored)


def sglang(rollouts: Rollouts) -> list[dict[str, Any]]:
    """Answers as SGLang's `Engine.generate` gives them, with the fields that a replay needs.

    The names are SGLang's: `output_ids`, and in `meta_info` `finish_reason`, token counts,
    `output_token_logprobs` (log-probability, token, None), `weight_version`, and `step_maps` as its
    pull request 27943 defines it. Log-probabilities are those of the untempered model, and 0 for
    what the model did not write.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        logprobs = np.nan_to_num(np.log(rollouts.probability), nan=0.0, neginf=-9999.0)
    steps, answers = step_map(rollouts), []
    for s, scored in enumerate(rollouts.scored):
        ids = rollouts.tokens[s, scored].tolist()
        values = logprobs[s, scored].tolist()
        meta = {
            "id": f"{s // rollouts.n}-{s % rollouts.n}",
            "finish_reason": {"type": rollouts.finish_reasons[s]},
            "prompt_tokens": int(rollouts.prompt_length[s]),
            "completion_tokens": len(ids),
            "weight_version": str(rollouts.weights_version[s]),
            "output_token_logprobs": [
                (value, id, None) for value, id in zip(values, ids, strict=True)
            ],
            "step_maps": steps[s],
        }
        answers.append({"text": rollouts.texts[s], "output_ids": ids, "meta_info": meta})
    return answers
