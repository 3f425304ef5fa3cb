"""`rho-eos models`: which models are on this machine, and in which types they would fit."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rho_eos.models.cached import CachedModel


def models(
    json_output: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> int:
    """List the models in the local Hub cache, the embedded ones first."""
    from huggingface_hub import constants

    from rho_eos.models.cached import cached_models
    from rho_eos.models.loading import choose_device
    from rho_eos.models.memory import free_memory

    found, free = cached_models(), free_memory(choose_device("auto")) or 0
    if json_output:
        print(json.dumps([each.as_dict(free) for each in found]))
        return 0
    for each in found:
        print(f"{each.model}  {_revision(each)}\n    {'; '.join(_facts(each, free))}")
    print(f"\n{free / 2**30:,.1f} GiB of memory are free.")
    if all(each.revision is None for each in found):
        print(
            f"There are no Hub models in {constants.HF_HUB_CACHE} yet; "
            "--model GSAI-ML/LLaDA-8B-Instruct would fetch one."
        )
    return 0


def _revision(model: "CachedModel") -> str:
    if model.revision is None:
        return "(embedded)"
    return f"{' '.join(model.names)} {model.revision[:8]}".strip()


def _facts(model: "CachedModel", free: int) -> Iterator[str]:
    from rho_eos.models.cached import fitting

    yield model.family or "not a masked diffusion model we know"
    yield f"{model.bytes / 2**20:,.1f} MiB on disk"
    if model.complete:
        yield "complete"
    elif model.files:
        yield f"partial: {model.files - model.missing} of {model.files} weight files"
    else:
        yield "damaged"
    if model.last_used is not None:
        yield f"last used {model.last_used:%Y-%m-%d}"
    if model.family is not None and model.parameters is not None:
        fits = [name for name, fit in fitting(model.parameters, free).items() if fit]
        yield f"fits here in {', '.join(fits)}" if fits else "fits here in no type"
