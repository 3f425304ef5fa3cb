"""Requests for an engine, made from lists of token ids."""

from collections.abc import Collection, Sequence
from typing import Any

from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.canvas import Canvas
from rho_eos.decoding.params import DecodeParams
from rho_eos.text.ask import Request

#: The ids of the scripted and of the random models.
SPECIAL = SpecialTokens(mask=3, eos=2, end_of_turn=1)


def request(
    id: str,
    prompt: Sequence[int],
    params: DecodeParams,
    canvas: Sequence[int] | None = None,
    *,
    gaps: Sequence[int] | None = None,
    suffix: Sequence[int] = (),
    sized: Collection[int] = (),
    special: SpecialTokens = SPECIAL,
    **more: Any,
) -> Request:
    """A request to start from this canvas, or from MASKs as its parameters say."""
    cells = params.first_length if canvas is None else canvas
    return Request(id, Canvas.of(special, prompt, cells, suffix, gaps, sized), params, **more)
