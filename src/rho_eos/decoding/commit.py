"""Which tokens: the seam of commit rules, and the parts that rules share.

A rule sees the candidates, the predicted MASKs of the block that is being written, and says which
of them are committed. It commits at least one where there is a candidate. A rule that changes its
mind answers with a `Commit`, which also names the cells that become MASK again.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from rho_eos.base.settings import Settings, setting
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.canvas import Canvas, Positions, no_positions
from rho_eos.decoding.params import LONGEST
from rho_eos.decoding.policy import Keeps
from rho_eos.decoding.prediction import Needs, Prediction, Probe

#: After so many forwards over a block without MASKs, its rule must have come to rest.
MOST_POST_STEPS = 1024
Order = Literal["confidence", "margin", "entropy"]
ORDER = (
    "by what candidates are ranked: the probability of their token, its margin over the second "
    "best, or low entropy"
)


class CommitParams(Settings):
    """The parameters that all commit rules share."""

    block_length: int | None = setting(
        32,
        "commit within one block at a time; none: anywhere. A block diffusion model has blocks of "
        "its own, and other lengths are outside of its training",
        ge=1,
        le=LONGEST,
    )
    sub_block_length: int | None = setting(
        None, "commit within one part of a block at a time, from left to right", ge=1, le=LONGEST
    )
    order: Order = setting("confidence", ORDER)
    defer_eos: bool = setting(False, "commit EOS in a block only when nothing else is left in it")


@dataclass(frozen=True, slots=True)
class Commit:
    """What a rule does in a step.

    Args:
        positions: The candidates that are written. A rule that needs the whole canvas and may
            change tokens (`Keeps.BLOCKS`) also has committed cells of the open block as candidates.
        remask: Committed cells of the open block that become MASK again.
        unsettled: The block stays open although no MASK may be left in it.
    """

    positions: Positions
    remask: Positions = field(default_factory=no_positions)
    unsettled: bool = False


class CommitRule(ABC):
    """Subclass it, set `name`, write `__call__`, and register it with `register_commit`.

    One rule is created for each request. The first line of its docstring says what it does. What it
    remembers of each cell it keeps in the canvas's columns (`canvas.keep`), which follow edits.
    """

    name: ClassVar[str]
    #: Its parameters: a subclass of `CommitParams` with fields made by `setting`.
    Params: ClassVar[type[CommitParams]] = CommitParams
    #: ALL: what is committed stays. BLOCKS: it may change tokens of the open block.
    keeps: ClassVar[Keeps] = Keeps.ALL
    #: Whoever gives one of these parameters and names no rule has chosen this rule.
    implied_by: ClassVar[tuple[str, ...]] = ()
    #: What it reads; `__init__` adds what the order of candidates needs.
    needs: Needs = Needs()

    def __init__(self, params: Any, special: SpecialTokens) -> None:
        self.params = params
        self.special = special
        order = params.order
        self.needs = self.needs | Needs(entropy=order == "entropy", margin=order == "margin")

    def probes(self, canvas: Canvas) -> Sequence[Probe]:  # noqa: ARG002
        """Further canvases that the next forward predicts: `candidates.probes`."""
        return ()

    def deferring(self, candidates: Prediction) -> Prediction:
        """With `defer_eos`, the candidates that would not end the text, unless all would."""
        goes_on = ~self.special.is_end(candidates.token)
        if not self.params.defer_eos or goes_on.all() or not goes_on.any():
            return candidates
        return candidates.at(candidates.positions[goes_on])

    @abstractmethod
    def __call__(self, canvas: Canvas, candidates: Prediction) -> Positions | Commit:
        """Which candidates are committed.

        Args:
            canvas: The sequence before this step's commits.
            candidates: What the model says at the MASKs that may be committed now, in order of
                their positions, at least one.
        """


def ranked(candidates: Prediction, order: Order) -> Positions:
    """All candidates, the surest first; among equals the leftmost."""
    return candidates.positions[np.argsort(-surety(candidates, order), kind="stable")]


def surety(candidates: Prediction, order: Order) -> np.ndarray:
    """(n,) the number that candidates are ranked by; the largest is the surest."""
    if order == "confidence":
        return candidates.confidence
    if order == "margin":
        assert candidates.margin is not None
        return candidates.margin
    assert candidates.entropy is not None
    return -candidates.entropy


def above_threshold(
    candidates: Prediction, threshold: float, tie: float = 0.0, order: Order = "confidence"
) -> Positions:
    """The τ rule: every candidate more confident than τ, or else the single surest one.

    Among equals it is the leftmost, and a difference of up to `tie` counts as none.
    """
    chosen = candidates.positions[candidates.confidence > threshold]
    if len(chosen) or not len(candidates.positions):
        return chosen
    sure = surety(candidates, order)
    return candidates.positions[sure >= sure.max() - tie][:1]
