"""`rho-eos merge`: a checkpoint with its adapters in the weights."""

from pathlib import Path
from typing import Annotated

import typer

from rho_eos.base.errors import UserError
from rho_eos.cli.options import Model
from rho_eos.config import EngineConfig


def merge(
    engine: EngineConfig,
    name: Model = None,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write; it must not exist.")],
) -> int:
    """Merge adapters into a model and write it as a checkpoint.

    The result has the layout of the original, so other programs read it too:

      rho-eos merge GSAI-ML/LLaDA-8B-Instruct --adapter my-lora --out merged
    """
    from rho_eos.models.loading import open_checkpoint
    from rho_eos.models.saving import write_merged

    config = engine if name is None else engine.replaced(model=name)
    if not config.adapter:
        raise UserError("merge needs an adapter: give --adapter, a folder or Hub id", "adapter")
    if config.quantization != "none":
        raise UserError(
            f"quantization is {config.quantization!r}, but a merged checkpoint is written as the "
            "original is stored; quantise it when it is loaded",
            "quantization",
        )
    checkpoint = open_checkpoint(config)
    write_merged(checkpoint, out)
    print(f"{config.model} with {', '.join(each.label for each in checkpoint.adapters)} → {out}")
    return 0
