"""Which blocks a checkpoint attends in: what its config says, else its name, else its family.

Published configs often leave the length out, and some families exist with and without blocks under
the same config. So wherever this was found is said in a sentence for people.
"""

import re
from pathlib import Path
from typing import Any

from rho_eos.base.errors import UserError, shown
from rho_eos.config import EngineConfig
from rho_eos.decoding.blocks import Blocks
from rho_eos.models.family import FAMILIES, Family, FamilyConfig

_IN_A_NAME = re.compile(r"-b([1-9]\d{0,4})(?![0-9A-Za-z])")


def blocks_of(
    config: EngineConfig, family: Family, model_config: Any, model: str
) -> tuple[Blocks | None, str]:
    """The blocks of a checkpoint, or None for full attention.

    Args:
        config: The engine's, which may say whether a model attends in blocks.
        family: The checkpoint's family.
        model_config: The checkpoint's config.
        model: Its folder or Hub id, whose last two parts may say what the config leaves out.

    Returns:
        The blocks, and a sentence on where they come from; empty where no family could tell
        anything else.
    """
    in_blocks, why = _in_blocks(config.attention, family, model_config, model)
    if not in_blocks:
        return None, f"full attention, {why}" if why else ""
    length, source = _length(family, model_config, model)
    blocks = Blocks(
        length=length,
        alignment=_alignment(family, model_config),
        opens_with_store=family.blocks is not None and family.blocks.opens_with_store,
    )
    where = ", counted from the end of the prompt" if blocks.alignment == "prompt" else ""
    note = f"blocks of {length}{where}: {source}"
    return blocks, f"{note}; it attends in blocks {why}" if why else note


def published(family: Family, model: str) -> dict[str, Any]:
    """Decoding parameters that a checkpoint is published with."""
    name, found = "/".join(_parts(model)).lower(), dict(family.decoding)
    for mark, more in family.decoding_named.items():
        if mark in name:
            found |= more
    return found


def length_of_forward(model_config: Any) -> int | None:
    """The length of blocks for a forward that is not told one; None: full attention.

    A family that exists with and without blocks is one without them until it is told a length.
    """
    family = FAMILIES.all().get(type(model_config).model_type)
    if family is None or not _always_in_blocks(family, model_config):
        return None
    return _length(family, model_config, model_config.name_or_path or "")[0]


def _in_blocks(
    attention: str, family: Family, model_config: FamilyConfig, model: str
) -> tuple[bool, str]:
    """Whether a model attends in blocks, and why, where its family does not say."""
    mark = family.blocks_named
    if mark is None:
        always = _always_in_blocks(family, model_config)
        if attention != "auto" and always != (attention == "blocks"):
            kind = "in blocks only" if always else "to all positions only"
            raise UserError(
                f"attention is {attention!r}, but this {family.name} model attends {kind}"
            )
        return always, ""
    if attention != "auto":
        return attention == "blocks", "as was asked for"
    if model_config.block_length_field() is not None:
        return True, ""
    held = mark in "/".join(_parts(model)).lower()
    has = "holds" if held else "does not hold"
    return held, f"because the name {has} {mark!r}, and config.json cannot tell"


def _always_in_blocks(family: Family, model_config: FamilyConfig) -> bool:
    """Whether a model attends in blocks, as far as family and config say."""
    always = family.blocks is not None and family.blocks_named is None
    return always or model_config.block_length_field() is not None


def _length(family: Family, model_config: FamilyConfig, model: str) -> tuple[int, str]:
    """The length of a block, and where it was found."""
    if field := model_config.block_length_field():
        return getattr(model_config, field), f"config.json says so ({field})"
    for part in reversed(_parts(model)):
        if found := _IN_A_NAME.search(part):
            length = int(found[1])
            return length, f"the name says so (-b{length}); config.json names none"
    assert family.blocks is not None
    return family.blocks.length, "the family's default; config.json names none"


def _alignment(family: Family, model_config: FamilyConfig) -> Any:
    given = getattr(model_config, "block_alignment", None)
    if given is None:
        return "absolute" if family.blocks is None else family.blocks.alignment
    if given not in ("absolute", "prompt"):
        raise UserError(
            f"config field block_alignment is {shown(given)}, but takes absolute or prompt"
        )
    return given


def _parts(model: str) -> tuple[str, ...]:
    """The last two parts of a Hub id, or of the path of a folder, also of one named `.`."""
    return Path(model).expanduser().absolute().parts[-2:] if model else ()
