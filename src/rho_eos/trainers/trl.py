"""TRL's GRPO with our rollouts: a `rollout_func`, and log-probabilities of a masked model.

TRL generates by `rollout_func` where it is given one, but takes log-probabilities as those of a
causal model. `MaskedDiffusionGRPOTrainer` replaces just these, with the one-step estimate of d1.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from transformers import GenerationConfig
from trl import GRPOTrainer

from rho_eos.decoding.params import DecodeParams, merged
from rho_eos.llm import LLM
from rho_eos.text.ask import Params


def rollout_func(
    llm: LLM, params: Params | None = None, **keywords: Any
) -> Callable[[list[Any], Any], dict[str, list[Any]]]:
    """What `GRPOTrainer(rollout_func=…)` takes.

    Every prompt that TRL hands over gets one sample with a seed of its own. Where the trainer
    trains `llm.model` itself, rollouts use its weights as they are; where it has a model of its
    own, that model's weights are handed over once after each step.

    Args:
        llm: What samples.
        params: Decoding parameters of all samples.
        keywords: Further decoding parameters, which beat `params`.

    Returns:
        A function of prompts and trainer. Beside what TRL asks for it gives `weights_version`,
        `nfe` and `positions_evaluated` of each sample, which reward functions may read.
    """
    asked, synced = 0, -1
    given: Mapping[str, Any] = {}
    if isinstance(params, DecodeParams):
        given = params.model_dump(exclude_unset=True)
    elif params is not None:
        given = params

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        nonlocal asked, synced
        model = trainer.accelerator.unwrap_model(trainer.model)
        if model is not llm.model and trainer.state.global_step != synced:
            llm.update_weights(model.state_dict())
            synced = trainer.state.global_step
        own = [merged(given, {**keywords, "seed": asked + i}) for i in range(len(prompts))]
        asked += len(prompts)
        rolled = llm.rollout(prompts, own, n=1)
        batch = next(rolled.batches(len(rolled)))
        answer: dict[str, list[Any]] = {"prompt_ids": [], "completion_ids": [], "logprobs": []}
        for s, scored in enumerate(batch.scored):
            answer["prompt_ids"].append(rolled.prompt_ids[s, : rolled.prompt_length[s]].tolist())
            answer["completion_ids"].append(batch.tokens[s][scored].tolist())
            answer["logprobs"].append(batch.old_logprobs[s][scored].tolist())
        for name in ("weights_version", "nfe", "positions_evaluated"):
            answer[name] = getattr(rolled, name).tolist()
        return answer

    return rollout


class MaskedDiffusionGRPOTrainer(GRPOTrainer):
    """GRPO whose log-probabilities are those of one forward with all of the completion masked.

    Args:
        model: What is trained.
        args: As for `GRPOTrainer`, as all other keywords.
        mask_token_id: MASK of the model, `llm.special.mask`.
        prediction_shift: The prediction for position i is read at i - prediction_shift; that of
            `llm.model`.
    """

    def __init__(
        self,
        model: Any,
        *args: Any,
        mask_token_id: int,
        prediction_shift: int = 0,
        **kwargs: Any,
    ) -> None:
        if not hasattr(model, "generation_config"):  # TRL writes into it, and nobody reads it
            model.generation_config = GenerationConfig()
        super().__init__(model, *args, **kwargs)
        self._mask, self._shift = mask_token_id, prediction_shift

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        """(rows, completion) log P of every token, and the entropies where they are wanted."""
        found, entropies = [], []
        start = input_ids.shape[1] - logits_to_keep
        rows = batch_size or len(input_ids)
        for ids, mask in zip(input_ids.split(rows), attention_mask.split(rows), strict=True):
            hidden = ids.clone()
            hidden[:, start:] = self._mask
            logits = model(input_ids=hidden, attention_mask=mask).logits
            at = slice(start - self._shift, input_ids.shape[1] - self._shift)
            each = logits[:, at].float().log_softmax(-1)
            found.append(each.gather(-1, ids[:, start:, None])[..., 0])
            if compute_entropy:
                entropies.append(-(each.exp() * each).sum(-1))
        return torch.cat(found), torch.cat(entropies) if compute_entropy else None, None
