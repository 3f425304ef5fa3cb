"""Text that is given behind or between what is wanted: a suffix, or a template with gaps.

    prefix ░░░░ suffix                    one gap: `suffix`
    {"name": "░░░░", "age": ░░░░}         several: a template

What stands before the first gap becomes the prompt, what stands behind the last the suffix, and the
text between gaps positions of the canvas that are committed from the start.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from rho_eos.decoding.registry import policies
from rho_eos.errors import UserError
from rho_eos.prompts import check_ids
from rho_eos.tokens import SpecialTokens
from rho_eos.user_text import encode_as_text

#: A text, or token ids.
Given = str | Sequence[int]
#: Three underscores or more; `___{12}` is a gap of 12 MASKs.
GAP = r"_{3,}(?:\{([0-9]{1,6})\})?"
#: How the length of a gap is found where no policy is named.
SEARCH: Mapping[str, Any] = {"policy": "cal", "evidence": "suffix", "patience": 8}
TRAINED: Mapping[str, Any] = {"policy": "dreamon"}  # by models that can say it


@dataclass(frozen=True, slots=True)
class Layout:
    """A template taken apart."""

    before: list[int]  # what becomes the end of the prompt
    canvas: list[int]  # from the first gap to the last, MASK where a token is wanted
    gaps: list[int]  # for each position of the canvas its gap, -1 for the text between
    suffix: list[int]
    texts: tuple[str, ...] = field(default=())  # around the gaps


def default_policy(given: Mapping[str, Any], special: SpecialTokens) -> dict[str, Any]:
    """The same parameters; who names no policy gets the one that finds the length of a gap."""
    if given.get("policy") is not None:
        return dict(given)
    default = SEARCH if special.expand is None else TRAINED
    return {**default, **{name: value for name, value in given.items() if name != "policy"}}


def refuse_unless_it_infills(policy: str) -> None:
    if not policies()[policy].infills:
        able = ", ".join(name for name, each in policies().items() if each.infills)
        raise UserError(
            f"policy {policy} lets its canvas end where the text ends, so nothing can be given "
            f"behind it; take one of {able}"
        )


def encode_prefix(text: str, tokenizer: Any) -> list[int]:
    """The beginning of a document, without a chat template."""
    if tokenizer is None:
        raise UserError("this model has no tokenizer: give prompt_token_ids instead of a prompt")
    start = tokenizer.bos_token_id
    return [*([] if start is None else [start]), *encode_as_text(tokenizer, text)]


def encode_suffix(
    suffix: Given, tokenizer: Any, special: SpecialTokens, vocabulary: int
) -> list[int]:
    """A text is the rest of a document and ends in EOS; token ids are taken as they are."""
    if not isinstance(suffix, str):
        check_ids("suffix_token_ids", suffix, vocabulary)
        if special.mask in suffix:
            raise UserError(
                f"the suffix holds the MASK id {special.mask}; several gaps make a template"
            )
        return list(suffix)
    if tokenizer is None:
        raise UserError("this model has no tokenizer: give suffix_token_ids instead of a suffix")
    return [*encode_as_text(tokenizer, suffix), special.eos]


def lay_out(
    template: Given,
    tokenizer: Any,
    special: SpecialTokens,
    vocabulary: int,
    length: int,
    context: int,
) -> Layout:
    """`length`: how many MASKs a gap gets that does not say. `context`: how many there may be."""
    if isinstance(template, str):
        pieces, sizes = _split_text(template, tokenizer, special, length)
        encoded = [encode_as_text(tokenizer, piece) for piece in pieces]
        if encoded[-1]:
            encoded[-1].append(special.eos)
    else:
        encoded, sizes = _split_ids(template, special, vocabulary)
        pieces = [_decoded(tokenizer, ids) for ids in encoded]
    if not sizes:
        raise UserError("the template has no gap: write ___ where text is wanted")
    if sum(sizes) > context:
        raise UserError(
            f"the gaps have {sum(sizes)} MASKs together; that is more than the model's context of "
            f"{context}"
        )
    canvas: list[int] = []
    gaps: list[int] = []
    for gap, size in enumerate(sizes):
        between = encoded[gap] if gap else []
        canvas += [*between, *[special.mask] * size]
        gaps += [*[-1] * len(between), *[gap] * size]
    return Layout(encoded[0], canvas, gaps, encoded[-1], tuple(pieces))


def _split_text(
    template: str, tokenizer: Any, special: SpecialTokens, length: int
) -> tuple[list[str], list[int]]:
    """The texts around the gaps, and the MASKs of each gap. A gap may be written as MASKs, too."""
    if tokenizer is None:
        raise UserError("this model has no tokenizer: give the template as token ids")
    mask = str(tokenizer.convert_ids_to_tokens(special.mask))
    pieces: list[str] = []
    sizes: list[int] = []
    start = 0
    for found in re.finditer(f"{GAP}|(?:{re.escape(mask)})+", template):
        size = length if found[1] is None else int(found[1])
        if mask in found[0]:
            size = len(found[0]) // len(mask)
        if not size:
            raise UserError(f"the gap {found[0]!r} has no MASK; a gap has at least one")
        pieces.append(template[start : found.start()])
        sizes.append(size)
        start = found.end()
    return [*pieces, template[start:]], sizes


def _split_ids(
    template: Sequence[int], special: SpecialTokens, vocabulary: int
) -> tuple[list[list[int]], list[int]]:
    check_ids("template", template, vocabulary)
    pieces: list[list[int]] = [[]]
    sizes: list[int] = []
    for masked, group in groupby(template, lambda token: token == special.mask):
        run = list(group)
        if masked:
            sizes.append(len(run))
            pieces.append([])
        else:
            pieces[-1] = run
    return pieces, sizes


def _decoded(tokenizer: Any, ids: list[int]) -> str:
    return "" if tokenizer is None else str(tokenizer.decode(ids, skip_special_tokens=True))
