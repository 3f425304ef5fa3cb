"""What the playground page asks the server before it draws itself, beyond the policies' schema."""

from typing import Any

from rho_eos.base.errors import UserError
from rho_eos.base.settings import choices
from rho_eos.decoding.params import DEFAULT_POLICY, DecodeParams
from rho_eos.decoding.registry import policies
from rho_eos.models.known import EMBEDDED
from rho_eos.server.fields import NAMES
from rho_eos.server.service import Service
from rho_eos.text.infilling import able_policies, gap_policy

_GENERIC = (
    "What is (3 + 4) * 2?",
    "Write a Python function that reverses a string.",
    "Explain in one sentence why the sky is blue.",
)
_PER_TASK = 3
#: What stands beside the default policy to be compared with it.
_RIVAL: dict[str, Any] = {"policy": "fixed", "initial_length": 256}


def playground_facts(service: Service) -> dict[str, Any]:
    context = service.llm.context_length
    rival = _RIVAL | {"initial_length": min(_RIVAL["initial_length"], context // 2)}
    return {
        "model": service.model,
        "max_prompt_tokens": service.config.max_prompt_tokens or context - 1,
        "max_new_tokens": context - 1,
        "names": NAMES,
        "defaults": service.llm.config.defaults,
        "implied": {name: _implied(name) for name in policies()},
        "infilling": {
            "policies": able_policies(service.llm.special),
            "start": {"policy": gap_policy(service.llm.special)},
        },
        "panels": {"a": {"policy": DEFAULT_POLICY}, "b": rival},
        "examples": _examples(service.llm.config.model),
    }


def _implied(policy: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Parameter -> choice -> the values that others have by default once it is chosen."""
    defaults = _resolved({"policy": policy})
    implied: dict[str, dict[str, dict[str, Any]]] = {}
    for name, field in policies()[policy].Params.model_fields.items():
        for choice in choices(field):
            chosen = _resolved({"policy": policy, name: choice}).items()
            changed = {other: value for other, value in chosen if value != defaults.get(other)}
            changed.pop(name, None)
            if changed:
                implied.setdefault(name, {})[choice] = changed
    return implied


def _resolved(given: dict[str, Any]) -> dict[str, Any]:
    """All parameters that follow from what is given, or none where that is not enough by itself."""
    try:
        return DecodeParams.from_mapping(given).model_dump(mode="json")
    except UserError:
        return {}


def _examples(model: str) -> list[dict[str, str]]:
    """Problems of the kind the embedded model was trained on, none of which it has seen."""
    if model not in EMBEDDED:
        return [{"task": "example", "prompt": prompt} for prompt in _GENERIC]
    from rho_eos.embedded.tasks import TASKS, held_out

    return [
        {"task": task, "prompt": problem.prompt}
        for task in TASKS
        for problem in held_out(task, _PER_TASK)
    ]
