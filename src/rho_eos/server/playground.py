"""What the playground page asks the server before it draws itself, beyond the schema."""

from collections.abc import Iterable, Mapping
from typing import Any

from rho_eos.base.errors import UserError
from rho_eos.base.settings import choices
from rho_eos.decoding.params import DEFAULT_POLICY, NO_CACHE, DecodeParams, parts_of
from rho_eos.decoding.registry import policies
from rho_eos.decoding.schema import AXES, choices_of
from rho_eos.models.known import EMBEDDED
from rho_eos.models.loading import Checkpoint
from rho_eos.server.fields import NAMES
from rho_eos.server.service import Service
from rho_eos.text.blockwise import begins_with_a_block, blockwise_policies
from rho_eos.text.infilling import able_policies, gap_policy
from rho_eos.text.preparation import able_caches
from rho_eos.views.narration import title_of

_GENERIC = (
    "What is (3 + 4) * 2?",
    "Write a Python function that reverses a string.",
    "Explain in one sentence why the sky is blue.",
)
#: Which held-out problems of each task are offered. On the first one, a story, the canvas of the
#: default policy grows and shrinks.
_OFFERED = (20, 0, 1)
#: What stands beside the default policy to be compared with it.
_RIVAL: dict[str, Any] = {"policy": "fixed", "initial_length": 256}


def playground_facts(service: Service) -> dict[str, Any]:
    """The model, what it does unasked, and what the page needs to offer and name the three axes."""
    llm, context, special = service.llm, service.llm.context_length, service.llm.special
    defaults, blocks = llm.preparer.defaults, llm.checkpoint.blocks
    policy = DEFAULT_POLICY if blocks is None else defaults["policy"]
    rival = _RIVAL | {"initial_length": min(_RIVAL["initial_length"], context // 2)}
    return {
        "model": service.model,
        "max_prompt_tokens": service.config.max_prompt_tokens or context - 1,
        "max_new_tokens": context - 1,
        "names": NAMES,
        "defaults": defaults,
        "usual": _usual_parts(defaults),
        "titles": {
            axis: {name: title_of(name, axis) for name in names}
            for axis, names in _offered(llm.checkpoint).items()
        },
        "refused": {} if blocks is None else _refused_in_blocks(),
        "implied": {name: _implied(name) for name in policies()},
        "blocks": None if blocks is None else blocks.length,
        # A block diffusion model sees no text behind a gap.
        "infilling": {
            "able": able_policies(special) if blocks is None else [],
            "usual": gap_policy(special),
        },
        "panels": {"a": {"policy": policy}, "b": rival},
        "examples": _examples(llm.config.model),
    }


def _offered(checkpoint: Checkpoint) -> dict[str, Iterable[str]]:
    """The parts of each axis that this model can be decoded with."""
    in_blocks = {} if checkpoint.blocks is None else {"policy": blockwise_policies()}
    every = {axis: choices_of(axis) for axis in AXES}
    return {**every, **in_blocks, "cache": able_caches(checkpoint)}


def _refused_in_blocks() -> dict[str, list[str]]:
    """Parameters of policies that a block diffusion model does not take."""
    able = blockwise_policies().items()
    return {name: ["initial_length"] for name, each in able if begins_with_a_block(each)}


def _usual_parts(defaults: Mapping[str, Any]) -> dict[str, str]:
    """The commit rule and the cache of requests that name neither, under a policy that has no rule
    of its own."""
    parts = parts_of({**defaults, "policy": DEFAULT_POLICY})
    return {
        "commit": parts.commit.name,
        "cache": NO_CACHE if parts.cache is None else parts.cache.name,
    }


def _implied(policy: str) -> dict[str, dict[str, dict[str, Any]]]:
    """For each choice of a parameter, the values that other parameters of the policy get by it."""
    fields, defaults = policies()[policy].Params.model_fields, _resolved({"policy": policy})
    implied: dict[str, dict[str, dict[str, Any]]] = {}
    for name, field in fields.items():
        for choice in choices_of(name) if name in ("commit", "cache") else choices(field):
            chosen = _resolved({"policy": policy, name: choice})
            changed = {
                other: chosen[other]
                for other in fields
                if other in chosen and other not in (name, *AXES)
                if chosen[other] != defaults.get(other)
            }
            if changed:
                implied.setdefault(name, {})[choice] = changed
    return implied


def _resolved(given: dict[str, Any]) -> dict[str, Any]:
    """All parameters that follow from what is given; empty where the policy needs more than
    that."""
    try:
        return DecodeParams.from_mapping(given).model_dump(mode="json")
    except UserError:
        return {}


def _examples(model: str) -> list[dict[str, str]]:
    """Problems of the kind the embedded model was trained on, none of which it has seen."""
    if model not in EMBEDDED:
        return [{"task": "example", "prompt": prompt} for prompt in _GENERIC]
    from rho_problems import TASKS, held_out

    return [
        {"task": task, "prompt": problem.prompt}
        for task in TASKS
        for problems in [held_out(task, max(_OFFERED) + 1)]
        for problem in [problems[number] for number in _OFFERED]
    ]
