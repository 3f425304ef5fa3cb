"""`rho-eos info`: what a checkpoint is, without loading its weights, or fetching them."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from rho_eos.base.errors import printable
from rho_eos.cli.options import Model
from rho_eos.config import EngineConfig

if TYPE_CHECKING:
    from rho_eos.models.adapters import Adapter

Check = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Then try this machine for about a minute: its kernels, whether small models compute "
        "the same as on a CPU, how fast it is and what will be slow. Made to be posted.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def info(
    engine: EngineConfig, name: Model = None, check: Check = False, json_output: Json = False
) -> int:
    """Show family, parameters, special ids, types and memory of a model; or try the machine."""
    from rho_eos.models.loading import open_checkpoint
    from rho_eos.models.placement import choose_device, describe

    config = engine if name is None else engine.replaced(model=name)
    checkpoint = open_checkpoint(config)
    placement = describe(config, checkpoint, choose_device(config.device))
    model, special, tokenizer = checkpoint.config, checkpoint.special, checkpoint.tokenizer
    heads, groups = model.num_attention_heads, model.num_key_value_heads
    missing = sum(not file.exists() for file in checkpoint.files)

    def token(id: int | None) -> str:
        if id is None:
            return "none"
        return f"{id}" if tokenizer is None else f"{id}  {tokenizer.convert_ids_to_tokens(id)}"

    adapters = "; ".join(_told(each) for each in checkpoint.adapters)
    rows = {
        "model": config.model,
        **({"adapter": adapters} if adapters else {}),
        "family": checkpoint.family.name,
        "parameters": f"{checkpoint.parameters:,}",
        "shape": f"{model.num_hidden_layers} layers, width {model.hidden_size}, {heads} heads"
        + (f" ({groups} key/value)" if groups != heads else ""),
        "vocabulary": f"{model.vocab_size:,}",
        "attention": checkpoint.blocks_note or "full attention",
        "context": f"{checkpoint.context_length:,} positions",
        "MASK": token(special.mask),
        "EOS": token(special.eos),
        "end of turn": token(special.end_of_turn),
        "chat template": "yes" if getattr(tokenizer, "chat_template", None) else "no",
        "stored": f"{', '.join(checkpoint.stored_dtypes)}, "
        f"{checkpoint.stored_bytes / 2**20:,.1f} MiB in {len(checkpoint.files)} file(s)"
        + (f", {missing} of them not fetched yet" if missing else ""),
        "would run on": placement.sentence,
        "room for": placement.room,
    }
    page = None
    if check:
        from rho_eos.doctor.page import as_text, examine

        page = examine(placement.device)
    if json_output:
        print(json.dumps(rows if page is None else rows | {"check": page}))
    else:
        for what, value in rows.items():
            print(f"{what:<15}{printable(value)}")
        if page is not None:
            print(f"\n{as_text(page)}")
    return 0 if page is None or page["passed"] else 1


def _told(adapter: "Adapter") -> str:
    """An adapter in one line."""
    made_for = f", made for {adapter.made_for}" if adapter.made_for else ""
    dora = ", DoRA" if adapter.settings.get("use_dora") else ""
    return (
        f"{adapter.label} ({adapter.identity[:8]}), rank {adapter.settings['r']}{dora}, "
        f"{adapter.parameters:,} parameters in {len(adapter.changes)} weights{made_for}"
    )
