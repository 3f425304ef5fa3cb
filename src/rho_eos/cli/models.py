"""`rho-eos models`: which models are on this machine, and in which types published ones fit."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rho_eos.evals.runs.table import Table


def models(json_output: bool = typer.Option(False, "--json", help="Print a JSON list.")) -> int:
    """List the models in the local Hub cache, the embedded ones first, and what would fit.

    Nothing is asked of the Hub: sizes of published models are their publishers' figures.
    """
    from huggingface_hub import constants

    from rho_eos.evals.runs.table import show
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
        print(f"There are no Hub models in {constants.HF_HUB_CACHE} yet.")
    print(
        "Published models, with what their weights take where so much is free; `info` is exact:\n"
    )
    show(published_table(free), "terminal")
    return 0


def published_table(free: int) -> "Table":
    """A row for each published model: in which types it fits here, with the memory it takes."""
    from rho_eos.evals.runs.table import Table
    from rho_eos.models.cached import BYTES
    from rho_eos.models.known import PUBLISHED

    def cell(size: float) -> str:
        return f"{size / 2**30:.1f} GiB" if size <= free else "–"

    rows = [
        [model, f"{billions:g} B", *(cell(billions * 1e9 * size) for size in BYTES.values())]
        for model, billions in PUBLISHED.items()
    ]
    return Table(("model", "parameters", *BYTES), rows)


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
