"""Text that is given behind or between what is wanted: a suffix, or a template with gaps.

    prefix ░░░░ suffix                    one gap: `suffix`
    {"name": "░░░░", "age": ░░░░}         several: a template

What stands before the first gap becomes the prompt, what stands behind the last the suffix, and the
text between gaps positions of the canvas that are committed from the start.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from rho_eos.base.errors import UserError
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.policy import Infills
from rho_eos.decoding.registry import policies
from rho_eos.text.prompts import check_ids, check_whole
from rho_eos.text.user_text import encode_as_text

#: A text, or token ids.
Given = str | Sequence[int]
#: Three underscores or more; `___{12}` is a gap of 12 MASKs.
GAP = r"_{3,}(?:\{(-?[0-9]+)\})?"
_OPEN_ENDED = re.compile(r"(?:(?!___).)*_{3,}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Layout:
    """The token ids of a request: what is given, and with a template where its gaps are."""

    before: list[int]  # the prompt, or of a template alone its beginning
    canvas: list[int] = field(default_factory=list)  # from the first gap to the last, with MASKs
    gaps: list[int] = field(default_factory=list)  # of each position its gap, -1: text between
    suffix: list[int] = field(default_factory=list)
    texts: tuple[str, ...] = ()  # around the gaps
    sized: frozenset[int] = frozenset()  # gaps whose text says how long they are

    @property
    def masks(self) -> int:
        """Of all gaps together."""
        return len(self.canvas) - self.gaps.count(-1)

    @property
    def given(self) -> int:
        """How many tokens are given."""
        return len(self.before) + len(self.suffix) + self.gaps.count(-1)


def stands_before_text(suffix: Given | None, template: Given | None) -> bool:
    """Whether text is given behind a gap; not if the only gap is the end of a text."""
    if template is None:
        return bool(suffix)
    return not (isinstance(template, str) and _OPEN_ENDED.fullmatch(template))


def gap_policy(special: SpecialTokens) -> str:
    """The policy of a gap where none is named: a model that was trained to choose its length
    (DreamOn) does so itself, with all others the length is searched for."""
    return "cal" if special.expand is None else "dreamon"


def refuse_unless_it_infills(policy: str, special: SpecialTokens) -> None:
    if not issubclass(policies()[policy], Infills):
        able = ", ".join(able_policies(special))
        raise UserError(
            f"policy {policy} lets its canvas end where the text ends, so neither text behind it "
            f"nor its length can be given; take one of {able}"
        )


def able_policies(special: SpecialTokens) -> list[str]:
    """Those whose canvas may stand before text, on a model with these tokens."""
    found = []
    for name, policy in policies().items():
        with suppress(UserError):
            policy.refuse(special)
            found += [name] if issubclass(policy, Infills) else []
    return found


def encode_prefix(text: str, tokenizer: Any) -> list[int]:
    """The beginning of a document, without a chat template."""
    check_whole("the prompt", text)
    if tokenizer is None:
        raise UserError("this model has no tokenizer: give prompt_token_ids instead of a prompt")
    start = tokenizer.bos_token_id
    return [*([] if start is None else [start]), *encode_as_text(tokenizer, text)]


def encode_suffix(
    suffix: Given, tokenizer: Any, special: SpecialTokens, vocabulary: int
) -> list[int]:
    """A text is the rest of a document and ends in EOS; token ids are taken as they are."""
    if not isinstance(suffix, str):
        if not isinstance(suffix, list | tuple):
            raise UserError(f"a suffix is a text or token ids, not {type(suffix).__name__}")
        check_ids("the suffix", suffix, vocabulary, also="text or a ")
        if special.mask in suffix:
            raise UserError(
                f"the suffix holds the MASK id {special.mask}; several gaps make a template"
            )
        return list(suffix)
    check_whole("the suffix", suffix)
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
    sized: frozenset[int] = frozenset()
    if isinstance(template, str):
        check_whole("the template", template)
        pieces, stated = _split_text(template, tokenizer, special)
        sizes = [length if size is None else size for size in stated]
        sized = frozenset(gap for gap, size in enumerate(stated) if size is not None)
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
    return Layout(encoded[0], canvas, gaps, encoded[-1], tuple(pieces), sized)


def _split_text(
    template: str, tokenizer: Any, special: SpecialTokens
) -> tuple[list[str], list[int | None]]:
    """The texts around the gaps, and the MASKs of each gap that says. A gap may be written as
    MASKs, too."""
    if tokenizer is None:
        raise UserError("this model has no tokenizer: give the template as token ids")
    mask = str(tokenizer.convert_ids_to_tokens(special.mask))
    pieces: list[str] = []
    sizes: list[int | None] = []
    start = 0
    for found in re.finditer(f"{GAP}|(?:{re.escape(mask)})+", template):
        size = None if found[1] is None else int(found[1][:7])  # more digits are too many anyway
        if mask in found[0]:
            size = len(found[0]) // len(mask)
        if size is not None and size < 1:
            raise UserError(f"the gap {found[0]!r} has no MASK; a gap has at least one")
        pieces.append(template[start : found.start()])
        sizes.append(size)
        start = found.end()
    return [*pieces, template[start:]], sizes


def _split_ids(
    template: Sequence[int], special: SpecialTokens, vocabulary: int
) -> tuple[list[list[int]], list[int]]:
    check_ids("template", template, vocabulary, also="text or a ")
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
