"""The seam that varies: given one sequence and what the model predicts there, what happens next.

A policy is created per sequence and may keep state. It touches no model and no device: it reads
arrays and answers with a `Step`, which the engine checks and applies.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rho_eos.config import DecodeParams

Positions = np.ndarray  # (n,) int64, indices into the canvas, ascending


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Ids that mean something to decoding. Configuration of a model, never literals in the loop."""

    mask: int
    eos: int
    end_of_turn: int | None = None

    @property
    def ends(self) -> tuple[int, ...]:
        """The returned text stops at the first of these."""
        if self.end_of_turn is None or self.end_of_turn == self.eos:
            return (self.eos,)
        return (self.eos, self.end_of_turn)


@dataclass(frozen=True, slots=True)
class View:
    """One sequence as a policy sees it, before this step's commits."""

    canvas: np.ndarray  # (L,) int64, committed tokens and MASKs
    masked: Positions  # where the MASKs are
    step: int  # forwards made before this one

    @property
    def length(self) -> int:
        return len(self.canvas)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says at `positions`: the MASKs, or the whole canvas if the policy asks."""

    positions: Positions
    token: np.ndarray  # (n,) int64, the chosen token, never MASK
    confidence: np.ndarray  # (n,) float64, its probability over the whole vocabulary
    eos_probability: np.ndarray  # (n,) float64

    def at(self, wanted: Positions) -> "Prediction":
        """The part of the prediction that speaks of `wanted` (all of which must be predicted)."""
        if len(wanted) == len(self.positions):
            return self
        index = np.searchsorted(self.positions, wanted)
        return Prediction(
            wanted, self.token[index], self.confidence[index], self.eos_probability[index]
        )


@dataclass(frozen=True, slots=True)
class Hold:
    """The length stays."""


@dataclass(frozen=True, slots=True)
class Append:
    """`count` tokens at the end: MASKs, or already committed EOS (DAEDAL closes its canvas so)."""

    count: int
    committed_eos: bool = False


@dataclass(frozen=True, slots=True)
class Trim:
    """Drop the last `count` positions. Dropping a committed token is a bug unless `cut` says so."""

    count: int
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Insert:
    """Replace the MASK at `at` by `count` MASKs; what exceeds `limit` is dropped at the end."""

    count: int
    at: int
    limit: int


Edit = Hold | Append | Trim | Insert


@dataclass(frozen=True, slots=True)
class Step:
    """Commit the predicted tokens at these positions, then edit the length."""

    commit: Positions
    edit: Edit
    signal: float | None = None  # what the length decision was based on
    finished: bool = False  # end now, even if the canvas would go on


class Policy(Protocol):
    #: True if `step` needs predictions at committed positions too.
    needs_whole_canvas: bool

    def step(self, view: View, prediction: Prediction) -> Step: ...


def make_policy(params: DecodeParams, special: SpecialTokens) -> Policy:
    """The policy that `params` names, fresh for one sequence."""
    from rho_eos.decoding.daedal import Daedal
    from rho_eos.decoding.fixed import Fixed
    from rho_eos.decoding.released import ReleasedRhoEos
    from rho_eos.decoding.rho_eos import RhoEos

    if params.policy == "fixed":
        return Fixed(params, special)
    if params.policy == "daedal":
        return Daedal(params, special)
    if params.preset == "released":
        return ReleasedRhoEos(params, special)
    return RhoEos(params, special)
