"""`rho-eos models`: which models are on this machine, and in which types they would fit."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rho_eos.models.cached import CachedModel


def models(
    json_output: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> int:
    """List the models in the local Hub cache, the embedded one first."""
    from huggingface_hub import constants
    from rich.console import Console
    from rich.table import Table

    from rho_eos.models.cached import cached_models, fitting, free_memory

    found, free = cached_models(), free_memory()
    if json_output:
        print(json.dumps([each.as_dict(free) for each in found]))
        return 0
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("model", "revision", "size", "weights", "last used", "fits here", "family"):
        table.add_column(column, overflow="fold")
    for each in found:
        fits = fitting(each.parameters, free) if each.parameters is not None else {}
        table.add_row(
            each.model,
            _revision(each),
            f"{each.bytes / 2**20:,.1f} MiB",
            _weights(each),
            f"{each.last_used:%Y-%m-%d}" if each.last_used else "",
            ", ".join(name for name, fit in fits.items() if fit) or ("nothing" if fits else "?"),
            each.family or "not a masked diffusion model we know",
        )
    console = Console(highlight=False, soft_wrap=True)
    console.print(table, markup=False)
    console.print(f"\nfree memory: {free / 2**30:,.1f} GiB", markup=False)
    if len(found) == 1:
        console.print(
            f"No Hub models in {constants.HF_HUB_CACHE} yet: the first "
            "`rho-eos generate --model GSAI-ML/LLaDA-8B-Instruct …` fetches one.",
            markup=False,
        )
    return 0


def _revision(model: "CachedModel") -> str:
    if model.revision is None:
        return "embedded"
    return f"{model.revision[:8]} {' '.join(model.names)}".strip()


def _weights(model: "CachedModel") -> str:
    if model.complete:
        return "complete"
    if not model.files:
        return "damaged"
    return f"partial: {model.files - model.missing} of {model.files} files"
