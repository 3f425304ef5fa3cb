"""`rho-eos models`: which models are on this machine, and in which types they would fit."""

import json
from collections.abc import Iterator
from typing import Any

import typer


def models(json_output: bool = typer.Option(False, "--json", help="Print a JSON list.")) -> int:
    """List the models in the local Hub cache, the embedded ones first."""
    from huggingface_hub import constants

    from rho_eos.models.cached import cached_models
    from rho_eos.models.placement import choose_device, free_memory

    free = free_memory(choose_device("auto")) or 0
    found = cached_models(free)
    if json_output:
        print(json.dumps(found))
        return 0
    for each in found:
        at = (
            f"{' '.join(each['names'])} {each['revision'][:8]}"
            if each["revision"]
            else "(embedded)"
        )
        print(f"{each['model']}  {at.strip()}\n    {'; '.join(_facts(each))}")
    print(f"\n{free / 2**30:,.1f} GiB of memory are free.")
    if all(each["revision"] is None for each in found):
        print(
            f"There are no Hub models in {constants.HF_HUB_CACHE} yet; "
            "--model GSAI-ML/LLaDA-8B-Instruct would fetch one."
        )
    return 0


def _facts(model: dict[str, Any]) -> Iterator[str]:
    yield model["family"] or "not a masked diffusion model we know"
    yield f"{model['bytes'] / 2**20:,.1f} MiB on disk"
    files = model["weight_files"]
    if model["complete"]:
        yield "complete"
    elif model["missing_files"]:
        yield f"partial: {files - model['missing_files']} of {files} weight files"
    else:
        yield "damaged"
    if model["last_used"]:
        yield f"last used {model['last_used'][:10]}"
    if model["family"] and model["fits"]:
        fits = [name for name, fit in model["fits"].items() if fit]
        yield f"fits here in {', '.join(fits)}" if fits else "fits here in no type"
