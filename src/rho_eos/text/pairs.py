"""Answers whose likelihood is asked for, with the prompts they stand behind, as token ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rho_eos.base.errors import UserError, shown
from rho_eos.decoding.blocks import Blocks
from rho_eos.text.preparation import Preparer

#: A text for itself, an answer with its prompt, or a mapping that holds `answer` and a prompt.
Scored = str | tuple[Any, Any] | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pair:
    """An answer to be scored behind its prompt."""

    prompt: list[int]
    answer: list[int]


def as_pairs(preparer: Preparer, items: Scored | Sequence[Scored], raw: bool = False) -> list[Pair]:
    """All are checked before any of them is scored."""
    one = isinstance(items, str | tuple | Mapping)
    listed: Sequence[Any] = [items] if one else items  # type: ignore[assignment]
    return [as_pair(preparer, item, raw) for item in listed]


def as_pair(preparer: Preparer, item: Any, raw: bool = False) -> Pair:
    """The ids of a prompt, in the chat template unless `raw`, and of the answer by itself.

    The two are encoded apart, as a model sees them that writes the answer. A text without a prompt
    stands behind what begins a document.
    """
    encoder = preparer.encoder
    if isinstance(item, Mapping):
        rest = {name: value for name, value in item.items() if name != "answer"}
        if "answer" not in item:
            raise UserError(f"a pair takes a prompt and an answer; got {', '.join(map(str, item))}")
        item = (rest or None, item["answer"])
    if isinstance(item, str):
        item = (None, item)
    if not isinstance(item, tuple) or len(item) != 2:
        raise UserError(f"what is scored is a text, or a pair of prompt and answer: {shown(item)}")
    prompt, answer = item
    if isinstance(answer, str):
        ids = encoder.text("the answer", answer)
    else:
        ids = encoder.ids("answer", answer, "text or a ")
    before = encoder.beginning or [preparer.special.eos]
    if prompt is not None:
        before = encoder.prompt(prompt, raw)
    if not ids:
        raise UserError("the answer is empty")
    length, context = len(before) + len(ids), preparer.checkpoint.context_length
    if length > context:
        raise UserError(f"prompt and answer have {length} tokens; the model takes {context}")
    return Pair(before, ids)


def refuse_blocks(blocks: Blocks | None, method: str = "bound") -> None:
    """A model in blocks has the one score that follows from how it writes."""
    if blocks is not None and method != "chain":
        raise UserError(
            "a block diffusion model has no likelihood of this kind: tokens are hidden anywhere, "
            "but such a model was trained to see finished blocks only; its scores are method chain",
            "method",
        )
