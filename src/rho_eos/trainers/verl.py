"""verl's rollout class with our rollouts, written to verl 0.9.1.

verl asks for an older transformers than we run on, so no extra installs the two together. With its
files in a folder of their own it was run against the real package (`tests/trainers/check_verl.py`).
It is the rollout itself: sampling and new weights. verl's agent loops talk to servers of other
engines, and are not served by it.
"""

from collections.abc import Iterable
from typing import Any

import torch
from tensordict import TensorDict  # type: ignore[import-not-found]
from verl import DataProto  # type: ignore[import-not-found]
from verl.workers.rollout.base import BaseRollout  # type: ignore[import-not-found]

from rho_eos.base.errors import UserError
from rho_eos.llm import LLM


class RhoEosRollout(BaseRollout):
    """Samples of a masked diffusion model for verl.

    Args:
        config: verl's RolloutConfig: `response_length`, `temperature`, `top_k`, `top_p`.
        model_config: verl's HFModelConfig.
        device_mesh: As verl gives it; each process has an engine of its own.
        llm: What samples; by default the model at `model_config.local_path`.
        decoding: Decoding parameters that verl has no names for: `{"policy": "scout"}`.
    """

    def __init__(
        self,
        config: Any,
        model_config: Any,
        device_mesh: Any,
        llm: LLM | None = None,
        decoding: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(config, model_config, device_mesh)
        self.llm = LLM(str(self.model_config.local_path)) if llm is None else llm
        self.decoding = decoding or {}
        self._asked = 0

    async def resume(self, tags: list[str]) -> None:
        """Nothing is put away between rollouts."""

    async def release(self) -> None:
        """Nothing is put away between rollouts."""

    async def update_weights(
        self,
        weights: Iterable[tuple[str, torch.Tensor]],
        wire_format: str = "named_tensors",
        **_: Any,
    ) -> None:
        """All of the named tensors, or none (`LLM.update_weights`)."""
        if wire_format != "named_tensors":
            raise UserError(f"wire_format is {wire_format!r}, but takes only 'named_tensors'")
        self.llm.update_weights(weights)

    def generate_sequences(self, prompts: DataProto) -> DataProto:
        """One sample of each prompt, padded to `response_length` as verl's own rollouts are.

        Beside verl's fields the batch holds `rollout_log_probs` (of the untempered model) and
        `step_map`, and `meta_info` the version of the weights.
        """
        ids, seen = prompts.batch["input_ids"], prompts.batch["attention_mask"]
        told, longest = prompts.meta_info, int(self.config.response_length)
        drawn = told.get("do_sample", True)
        top_k = told.get("top_k", self.config.top_k) or 0
        params = {
            "max_new_tokens": longest,
            "temperature": told.get("temperature", self.config.temperature) if drawn else 0.0,
            "top_p": told.get("top_p", self.config.top_p) if drawn else 1.0,
            **({"top_k": top_k} if drawn and top_k > 0 else {}),
            **self.decoding,
        }
        rows = [row[mask.bool()].tolist() for row, mask in zip(ids, seen, strict=True)]
        own = [{**params, "seed": self._asked + number} for number in range(len(rows))]
        self._asked += len(rows)
        rolled = self.llm.rollout([{"prompt_token_ids": row} for row in rows], own, n=1)
        [batch] = rolled.batches(len(rolled))
        fill = int(told.get("pad_token_id", self.llm.special.eos))
        responses = torch.full((len(rows), longest), fill)
        logprobs, steps = torch.zeros(len(rows), longest), torch.zeros_like(responses)
        real = torch.zeros(len(rows), longest, dtype=seen.dtype)
        for s, scored in enumerate(batch.scored):
            count = min(int(scored.sum()), longest)
            responses[s, :count] = batch.tokens[s][scored][:count]
            logprobs[s, :count] = batch.old_logprobs[s][scored][:count]
            steps[s, :count] = batch.step[s][scored][:count] + 1
            real[s, :count] = 1
        places = prompts.batch["position_ids"]
        behind = places[:, -1:] + torch.arange(1, longest + 1)
        tensors = {
            "prompts": ids,
            "responses": responses,
            "input_ids": torch.cat((ids, responses), 1),
            "attention_mask": torch.cat((seen, real), 1),
            "position_ids": torch.cat((places, behind), 1),
            "rollout_log_probs": logprobs,
            "step_map": steps,
        }
        version = int(rolled.weights_version.max())
        found = TensorDict(tensors, batch_size=len(rows))
        return DataProto(batch=found, meta_info={"weights_version": version})
