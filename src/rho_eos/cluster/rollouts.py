"""Rollouts on many machines: an engine in each Ray actor, and a trainer that sends weights."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ray

if TYPE_CHECKING:
    import torch

    from rho_eos.rollouts.arrays import Rollouts


class RolloutEngine:
    """What runs in an actor: an `LLM`, its rollouts, and the weights that it is sent."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        from rho_eos.llm import LLM

        self._llm = LLM(**options)

    def rollout(self, prompts: Sequence[Any], keywords: Mapping[str, Any]) -> "Rollouts":
        return self._llm.rollout(prompts, **keywords)

    def update_weights(self, weights: Any) -> int:
        return self._llm.update_weights(weights)


class RolloutPool:
    """Several engines that sample together.

    Examples:
        >>> pool = RolloutPool(4, model="GSAI-ML/LLaDA-8B-Instruct", actor={"num_gpus": 1})
        >>> pool.update_weights(model.state_dict())
        >>> parts = pool.rollout(prompts, n=8, temperature=1.0)
    """

    def __init__(
        self, count: int, *, actor: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        """Start the engines.

        Args:
            count: How many actors.
            actor: What Ray is to give each of them, `{"num_gpus": 1}`.
            options: The arguments of `LLM`, the same for all.
        """
        remote = ray.remote(RolloutEngine).options(**(actor or {}))
        self.actors: list[Any] = [remote.remote(options) for _ in range(count)]

    def update_weights(self, weights: "Mapping[str, torch.Tensor] | str") -> int:
        """Give all engines new weights, which travel to each node once.

        What cannot be used is refused by all alike. An engine that dies on the way raises Ray's
        error, and the others have the new weights: `Rollouts.weights_version` tells them apart.

        Args:
            weights: A state dict, or a path that every node can read (see `LLM.update_weights`).

        Returns:
            The version of the new weights.
        """
        held = weights if isinstance(weights, str) else ray.put(_on_cpu(weights))
        versions = ray.get([each.update_weights.remote(held) for each in self.actors])
        return int(min(versions))

    def rollout(self, prompts: Sequence[Any], **keywords: Any) -> "list[Rollouts]":
        """Samples of all prompts, in their order; one `Rollouts` for each engine that had any.

        Args:
            prompts: What is asked, as in `LLM.rollout`.
            keywords: The other arguments of `LLM.rollout`, for all prompts.
        """
        share = -(-len(prompts) // len(self.actors))
        parts = [prompts[start : start + share] for start in range(0, len(prompts), share)]
        pairs = zip(self.actors, parts, strict=False)
        return ray.get([each.rollout.remote(part, keywords) for each, part in pairs])


def _on_cpu(weights: "Mapping[str, torch.Tensor]") -> "dict[str, torch.Tensor]":
    """Ray carries tensors of the CPU, and must not carry what a tensor is a view of."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
