"""Text that is given behind or between what is wanted: a suffix, or a template with gaps.

    prefix ░░░░ suffix                    one gap: `suffix`
    {"name": "░░░░", "age": ░░░░}         several: a template

What stands before the first gap becomes the prompt, what stands behind the last the suffix, and the
text between gaps positions of the canvas that are committed from the start.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from math import ceil

from rho_eos.base.errors import UserError
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.canvas import Canvas
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.policy import Infills
from rho_eos.decoding.registry import policies
from rho_eos.text.prompts import Encoder, Given

#: Three underscores or more; `___{12}` is a gap of 12 MASKs.
GAP = r"_{3,}(?:\{(-?[0-9]+)\})?"
_OPEN_ENDED = re.compile(r"(?:(?!___).)*_{3,}", re.DOTALL)


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
    """The policies whose canvas may stand before text, on a model with these tokens."""
    found = []
    for name, policy in policies().items():
        with suppress(UserError):
            policy.refuse(special)
            found += [name] if issubclass(policy, Infills) else []
    return found


@dataclass(frozen=True, slots=True)
class Template:
    """A text with gaps, taken apart at them."""

    pieces: list[list[int]]  # token ids around the gaps, one piece more than there are gaps
    sizes: list[int | None]  # MASKs of each gap; None: the template does not say
    texts: tuple[str, ...]  # the pieces as text
    sized: frozenset[int] = frozenset()  # gaps that have the length they are to have

    @classmethod
    def read(cls, template: Given, encoder: Encoder, special: SpecialTokens) -> "Template":
        """Take a text apart, or token ids, in which the gaps are MASKs."""
        if isinstance(template, str):
            texts, sizes = _split(template, encoder, special)
            pieces = [encoder.text("the template", text) for text in texts]
            if pieces[-1]:
                pieces[-1].append(special.eos)
            sized = frozenset(gap for gap, size in enumerate(sizes) if size is not None)
            return cls(pieces, sizes, tuple(texts), sized)
        pieces, sizes = [[]], []
        ids = encoder.ids("template", template, "text or a ")
        for masked, group in groupby(ids, lambda token: token == special.mask):
            run = list(group)
            if masked:
                sizes.append(len(run))
                pieces.append([])
            else:
                pieces[-1] = run
        return cls(pieces, sizes, tuple(map(encoder.decode, pieces)))

    def canvas(
        self, before: Sequence[int], special: SpecialTokens, params: DecodeParams, context: int
    ) -> Canvas:
        """From the first gap to the last, behind `before` and the beginning of the template."""
        cells: list[int] = []
        gaps: list[int] = []
        for gap, size in enumerate(self._sizes(params, context)):
            between = self.pieces[gap] if gap else []
            cells += [*between, *[special.mask] * size]
            gaps += [*[-1] * len(between), *[gap] * size]
        first, *_, last = self.pieces
        return Canvas.of(special, [*before, *first], cells, last, gaps, self.sized)

    def _sizes(self, params: DecodeParams, context: int) -> list[int]:
        """The MASKs of each gap. Those that say no length have `initial_length`, and more where all
        gaps together have to hold `min_new_tokens`."""
        start, least = params.initial_length, params.min_new_tokens
        missing, stated = self.sizes.count(None), sum(filter(None, self.sizes))
        if missing:
            start = max(start, ceil((least - stated) / missing))
        elif not self.sizes:
            raise UserError("the template has no gap: write ___ where text is wanted")
        elif stated < least:
            raise UserError(
                f"min_new_tokens is {least}, but the gaps have {stated} MASKs", "min_new_tokens"
            )
        if stated + missing * start > context:
            raise UserError(
                f"the gaps have {stated + missing * start} MASKs together; that is more than the "
                f"model's context of {context}"
            )
        return [start if size is None else size for size in self.sizes]


def _split(
    template: str, encoder: Encoder, special: SpecialTokens
) -> tuple[list[str], list[int | None]]:
    """The texts around the gaps, and the MASKs of each gap that says. A gap may be written as
    MASKs, too."""
    encoder.check_tokenizer("the template as token ids")
    mask = str(encoder.tokenizer.convert_ids_to_tokens(special.mask))
    texts: list[str] = []
    sizes: list[int | None] = []
    start = 0
    for found in re.finditer(f"{GAP}|(?:{re.escape(mask)})+", template):
        size = None if found[1] is None else int(found[1][:7])  # more digits are too many anyway
        if mask in found[0]:
            size = len(found[0]) // len(mask)
        if size is not None and size < 1:
            raise UserError(f"the gap {found[0]!r} has no MASK; a gap has at least one")
        texts.append(template[start : found.start()])
        sizes.append(size)
        start = found.end()
    return [*texts, template[start:]], sizes
