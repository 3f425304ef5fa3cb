"""What the playground page asks the server before it draws itself."""

import dataclasses
from typing import Any

from rho_eos.config import PRESETS, DecodeParams
from rho_eos.server.service import Service

_GENERIC = (
    "What is (3 + 4) * 2?",
    "Write a Python function that reverses a string.",
    "Explain in one sentence why the sky is blue.",
)
_PER_TASK = 3


def playground_facts(service: Service) -> dict[str, Any]:
    context = service.llm.context_length
    return {
        "model": service.model,
        "max_prompt_tokens": service.config.max_prompt_tokens or context - 1,
        "max_new_tokens": context - 1,
        "presets": {name: list(region) for name, region in PRESETS.items()},
        "defaults": dataclasses.asdict(DecodeParams()),
        "examples": _examples(service.llm.config.model),
    }


def _examples(model: str) -> list[dict[str, str]]:
    """Problems of the kind the embedded model was trained on, none of which it has seen."""
    if model != "tiny":
        return [{"task": "example", "prompt": prompt} for prompt in _GENERIC]
    from rho_eos.tiny.tasks import TASKS, held_out

    return [
        {"task": task, "prompt": problem.prompt}
        for task in TASKS
        for problem in held_out(task, _PER_TASK)
    ]
