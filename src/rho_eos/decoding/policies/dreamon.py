"""DreamOn: a model that says itself where its canvas is too short or too long (docs/method.md §12).

For checkpoints with a token EXPAND, in which EOS at a MASK means that nothing belongs there.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from rho_eos.base.errors import UserError
from rho_eos.base.outputs import StepRecord
from rho_eos.base.settings import setting
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.edits import Delete, Insert
from rho_eos.decoding.params import LONGEST, DecodeParams
from rho_eos.decoding.policy import Needs, Policy, Positions, Prediction, Step, View, no_tokens
from rho_eos.decoding.registry import register_policy


class DreamOnParams(DecodeParams):
    initial_length: int = setting(16, "MASKs that a gap starts with", ge=1, le=LONGEST)
    order: Literal["entropy", "maskgit_plus", "topk_margin"] = setting(
        "entropy",
        "which MASK is next: that of the lowest entropy, the highest probability, or the largest "
        "margin over the second best",
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


@register_policy
class DreamOn(Policy):
    """One MASK a step. EXPAND there makes it two; EOS deletes it and the MASKs behind it."""

    name = "dreamon"
    title = "DreamOn"
    summary = "Fills one MASK a step; the model may make it two, or delete it and those behind."
    Params = DreamOnParams
    edits = (Insert, Delete)
    infills = True
    reads_ends = True
    params: DreamOnParams

    def __init__(self, params: DreamOnParams, special: SpecialTokens) -> None:
        super().__init__(params, special)
        self.needs = Needs(entropy=params.order == "entropy", margin=params.order == "topk_margin")
        self.expanded = 0
        self.made = 0  # forwards

    @property
    def windows(self) -> bool:  # type: ignore[override]
        """Not in the last forward, which has to end the row."""
        return self.made + 1 < self.params.steps

    @classmethod
    def refuse(cls, special: SpecialTokens) -> None:
        if special.expand is None:
            raise UserError("policy dreamon needs a model with an EXPAND token (DreamOn's)")

    @classmethod
    def explain(cls, params: DreamOnParams, record: StepRecord) -> str:  # noqa: ARG003
        if record.change > 0:
            return "The model asks for more room here: the MASK becomes two."
        if record.change < 0:
            return f"The model has nothing to say here: {-record.change} MASKs are deleted."
        return "The MASK that the model is surest of is filled."

    def commit(self, view: View, prediction: Prediction) -> Positions:
        """In a window step: nothing where the length has to change, which takes a refresh."""
        self.made = view.step + 1
        chosen, token = self._next(view, prediction)
        changes = token in (self.special.expand, self.special.eos)
        return no_tokens() if changes else np.array([chosen])

    def forbids(self, view: View) -> tuple[int, ...]:
        """EXPAND, once the budget is used up or there is no more room."""
        params = self.params
        assert self.special.expand is not None and params.expansions is not None
        full = view.length - view.given >= params.max_new_tokens
        row = len(view.prompt) + view.length + len(view.suffix)
        full = full or (params.context is not None and row >= params.context)
        return (self.special.expand,) if full or self.expanded >= params.expansions else ()

    def step(self, view: View, prediction: Prediction) -> Step:
        self.made = view.step + 1
        chosen, token = self._next(view, prediction)
        finished = True if self.made >= self.params.steps else None
        if token == self.special.expand:
            self.expanded += 1
            return Step(no_tokens(), (Insert(chosen, 1),), finished=finished)
        if token == self.special.eos:
            return Step(no_tokens(), (Delete(self._deleted(view, chosen)),), finished=finished)
        return Step(np.array([chosen]), finished=finished)

    def _next(self, view: View, prediction: Prediction) -> tuple[int, int]:
        """The MASK that is decided now, and the token there; among equals the leftmost."""
        masks = prediction.at(view.masked)
        order = {
            "entropy": lambda: np.argmin(masks.entropy),  # type: ignore[arg-type]
            "maskgit_plus": lambda: np.argmax(masks.confidence),
            "topk_margin": lambda: np.argmax(masks.margin),  # type: ignore[arg-type]
        }
        best = int(order[self.params.order]())
        return int(masks.positions[best]), int(masks.token[best])

    def _deleted(self, view: View, chosen: int) -> Positions:
        """The MASKs of the gap from the first EOS of the whole row on, of which this is one; a
        minimum length stays."""
        eos = self.special.eos
        first = 0 if eos in view.prompt else chosen
        earlier = np.flatnonzero(view.canvas[:first] == eos)
        first = int(earlier[0]) if len(earlier) else first
        first = max(first, view.behind(self.params.min_new_tokens))
        return view.masked[(view.masked >= first) & view.gap_of(chosen)[view.masked]]
