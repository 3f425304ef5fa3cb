"""What block diffusion models ask of requests: their own defaults, and what they cannot do.

Such a model writes one block after the other and sees nothing behind the one it is writing
(docs/method.md §13). So a length cannot be read ahead, and no text can stand behind an answer.
"""

from dataclasses import replace
from typing import Any

from rho_eos.base.errors import UserError
from rho_eos.decoding.blocks import Blocks
from rho_eos.decoding.canvas import Canvas
from rho_eos.decoding.edits import Append
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.policy import Blockwise, Policy
from rho_eos.decoding.registry import policies
from rho_eos.models.loading import Checkpoint
from rho_eos.text.ask import Ask


def block_defaults(checkpoint: Checkpoint) -> dict[str, Any]:
    """How a block diffusion model is decoded where nobody says otherwise."""
    assert checkpoint.blocks is not None
    native = {"policy": "blocks", "cache": "blocks", "block_length": checkpoint.blocks.length}
    return {**native, **checkpoint.decoding}


def refuse_text_behind(ask: Ask) -> None:
    """Refuse an ask with text behind the answer, which the model could not see."""
    asked = {"suffix": ask.suffix, "template": ask.template}
    for name, given in asked.items():
        if given is not None:
            raise UserError(
                f"{name} does not go with a block diffusion model: it sees nothing behind the "
                "block that it is writing",
                name,
            )


def blockwise_policies() -> dict[str, type[Policy]]:
    """The policies that a block diffusion model can be decoded with."""
    return {name: each for name, each in policies().items() if issubclass(each, Blockwise)}


def blockwise(params: DecodeParams, trained: Blocks) -> DecodeParams:
    """The parameters with the length of a block, where they do not say one themselves.

    A policy that reads a length from positions that it does not have is refused.
    """
    able = blockwise_policies()
    if params.policy not in able:
        takes = (
            f"one of {', '.join(able)} with a block diffusion model, which has no positions "
            "behind the block that it is writing to read a length from"
        )
        raise UserError.of("policy", params.policy, takes)
    if grows(params) and "initial_length" in params.model_fields_set:
        raise UserError(
            "initial_length does not go with a block diffusion model under policy "
            f"{params.policy}: its canvas begins with one block, whose length is block_length",
            "initial_length",
        )
    if getattr(params, "block_length", None) is None:
        return params.model_copy(update={"block_length": trained.length})
    return params


def in_blocks(canvas: Canvas, params: DecodeParams, trained: Blocks) -> Canvas:
    """The canvas of a prompt: its first block, or all of them where the policy adds none."""
    length: int = getattr(params, "block_length", None) or trained.length
    blocks, prompt = replace(trained, length=length), canvas.prompt.tolist()
    empty = Canvas.of(canvas.special, prompt, 0, blocks=blocks)
    cells = empty.whole_blocks(params.longest)
    if grows(params):
        cells = min(cells, length - empty.before_block)
    return Canvas.of(canvas.special, prompt, cells, blocks=blocks, most=params.longest)


def begins_with_a_block(policy: type[Policy]) -> bool:
    """Whether a canvas is one block long at first, so that it takes no initial length."""
    return Append in policy.edits


def grows(params: DecodeParams) -> bool:
    """Whether its policy opens one block after the other."""
    assert params.parts is not None
    return begins_with_a_block(params.parts.policy)
