"""DreamOn: a model that says itself where its canvas is too short or too long (docs/method.md §12).

For checkpoints with a token EXPAND, in which EOS at a MASK means that nothing belongs there.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from rho_eos.base.errors import UserError
from rho_eos.base.settings import Settings, setting
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.canvas import Canvas, Positions, no_positions
from rho_eos.decoding.commit import ORDER, CommitRule, ranked
from rho_eos.decoding.edits import Delete, Insert
from rho_eos.decoding.params import LONGEST, DecodeParams
from rho_eos.decoding.policy import Infills, Policy, Step, Windowed
from rho_eos.decoding.prediction import Needs, Prediction
from rho_eos.decoding.registry import register_policy

#: The orders of the published code, in ours.
PUBLISHED: dict[str, Any] = {"maskgit_plus": "confidence", "topk_margin": "margin"}


class DreamOnParams(DecodeParams):
    initial_length: int = setting(16, "MASKs that a gap starts with", ge=1, le=LONGEST)
    order: Literal["entropy", "confidence", "margin", "maskgit_plus", "topk_margin"] = setting(
        "entropy", f"{ORDER}; maskgit_plus and topk_margin are the published code's names"
    )
    steps: int = setting(128, "give up after so many forwards", ge=1, le=LONGEST)
    context: int | None = setting(
        None, "longest row, prefix and suffix included; none: the model's", ge=1, le=LONGEST
    )
    expansions: int | None = setting(
        None, "how often a MASK may become two; none: max_new_tokens", ge=0, le=LONGEST
    )

    @classmethod
    def _defaults(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """The budget is what was asked for, also where the context leaves less room."""
        limit = given.get("max_new_tokens", cls.model_fields["max_new_tokens"].default)
        return {"expansions": limit} if type(limit) is int and limit >= 0 else {}

    @property
    def most_steps(self) -> int:
        return max(super().most_steps, self.steps)


class OneByOne(CommitRule):
    """Commits the surest candidate, unless its token changes the length, which is no commit."""

    name = "dreamon"
    Params = Settings  # type: ignore[assignment] # it has no other than the policy's

    def __init__(self, params: "DreamOnParams", special: SpecialTokens) -> None:
        super().__init__(params, special)
        self.order = PUBLISHED.get(params.order, params.order)
        self.needs = Needs(entropy=self.order == "entropy", margin=self.order == "margin")

    def __call__(self, canvas: Canvas, candidates: Prediction) -> Positions:  # noqa: ARG002
        first = ranked(candidates, self.order)[:1]
        token = int(candidates.at(first).token[0])
        return no_positions() if token in (self.special.expand, self.special.eos) else first


@register_policy
class DreamOn(Windowed, Infills, Policy):
    """Fills one MASK a step; the model may make it two, or delete it and those behind."""

    name = "dreamon"
    Params = DreamOnParams
    edits = (Insert, Delete)
    rule = OneByOne
    reads_ends = True
    params: DreamOnParams

    def __init__(self, params: DreamOnParams, special: SpecialTokens) -> None:
        super().__init__(params, special)
        self.expanded = 0

    @classmethod
    def refuse(cls, special: SpecialTokens) -> None:
        if special.expand is None:
            raise UserError("policy dreamon needs a model with an EXPAND token (DreamOn's)")

    def must_see_all(self, step: int) -> bool:
        """The last forward has to end the row."""
        return step + 1 >= self.params.steps

    def forbids(self, canvas: Canvas) -> tuple[int, ...]:
        """EXPAND, once the budget is used up or there is no more room."""
        params = self.params
        assert self.special.expand is not None
        full = canvas.own_length >= params.max_new_tokens
        full = full or (params.context is not None and canvas.row_length >= params.context)
        budget = params.max_new_tokens if params.expansions is None else params.expansions
        return (self.special.expand,) if full or self.expanded >= budget else ()

    def step(self, canvas: Canvas, prediction: Prediction, commit: Positions) -> Step:
        finished = True if canvas.step + 1 >= self.params.steps else None
        if len(commit):
            return Step(finished=finished)
        order = PUBLISHED.get(self.params.order, self.params.order)
        chosen = ranked(prediction.at(canvas.masked), order)[:1]
        edits: tuple[Insert | Delete, ...] = (Delete(self._deleted(canvas, int(chosen[0]))),)
        if prediction.at(chosen).token[0] == self.special.expand:
            self.expanded += 1
            edits = (Insert(int(chosen[0]), 1),)
        return Step(edits, commit=no_positions(), finished=finished)

    def _deleted(self, canvas: Canvas, chosen: int) -> Positions:
        """What an EOS at `chosen` deletes: the MASKs of its gap behind the first EOS of the row.

        A minimum length is not deleted.
        """
        eos = self.special.eos
        first = 0 if eos in canvas.prompt else chosen
        earlier = np.flatnonzero(canvas.cells[:first] == eos)
        first = int(earlier[0]) if len(earlier) else first
        first = max(first, canvas.behind(self.params.min_new_tokens))
        return canvas.masked[(canvas.masked >= first) & canvas.gap_of(chosen)[canvas.masked]]
