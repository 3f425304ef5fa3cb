"""The seam that varies: given one sequence and what the model predicts there, what happens next.

A policy is a class in one file. It declares its name, its parameters, what it needs from a forward
and which edits it may make; `step` decides. One is created for each request and may keep state. It
touches no model and no device: it reads arrays and answers with a `Step`, which the engine checks
and applies.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from enum import Enum, auto
from typing import Any, ClassVar

import numpy as np

from rho_eos.base.outputs import StepRecord
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.edits import Edit
from rho_eos.decoding.params import DecodeParams

RHO = "ρ"
Positions = np.ndarray  # (n,) int64, indices into the canvas, ascending


def no_tokens() -> np.ndarray:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class View:
    """One sequence as a policy sees it, before this step's commits."""

    canvas: np.ndarray  # (L,) int64, committed tokens and MASKs
    masked: Positions  # where the MASKs are
    step: int  # forwards made before this one
    #: Which gap a position belongs to, -1: text that was given with the request. None: one gap.
    gaps: np.ndarray | None = None  # (L,) int64
    prompt: np.ndarray = field(default_factory=no_tokens)  # (P,) int64, what stands before
    suffix: np.ndarray = field(default_factory=no_tokens)  # (S,) int64, and behind
    sized: frozenset[int] = frozenset()  # gaps that have the length they are to have

    @property
    def length(self) -> int:
        return len(self.canvas)

    @property
    def given(self) -> int:
        """How many positions of the canvas are text that was given."""
        return 0 if self.gaps is None else int(np.count_nonzero(self.gaps < 0))

    def behind(self, count: int) -> int:
        """The position behind the first `count` that are not given."""
        if self.gaps is None:
            return count
        own = np.flatnonzero(self.gaps >= 0)
        if not count:
            return 0
        return int(own[count - 1]) + 1 if count <= len(own) else self.length

    def gap_of(self, position: int) -> np.ndarray:
        """(L,) bool: the positions of the gap that this one belongs to."""
        if self.gaps is None:
            return np.ones(self.length, dtype=bool)
        return np.asarray(self.gaps == self.gaps[position])


@dataclass(frozen=True, slots=True)
class Needs:
    """What a policy reads beyond token, confidence and P(EOS) at the MASKs; only that is made."""

    whole_canvas: bool = False  # predictions at committed positions too
    entropy: bool = False
    margin: bool = False
    expected: bool = False  # the probability of the given text that it hides


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says at `positions`: the MASKs, or the whole canvas if the policy asks."""

    positions: Positions
    token: np.ndarray  # (n,) int64, the chosen token, never MASK
    confidence: np.ndarray  # (n,) float64, its probability over the whole vocabulary
    eos_probability: np.ndarray  # (n,) float64
    entropy: np.ndarray | None = None  # (n,) float64, in nats, if the policy needs it
    margin: np.ndarray | None = None  # (n,) float64, best less second best probability, likewise
    expected: np.ndarray | None = None  # (n,) float64, probability of what stands there, likewise
    #: (n, k) the likeliest tokens and their probabilities, if the request asks for logprobs
    top_token: np.ndarray | None = None
    top_probability: np.ndarray | None = None

    def at(self, wanted: Positions) -> "Prediction":
        """The part of the prediction that speaks of `wanted` (all of which must be predicted)."""
        if len(wanted) == len(self.positions):
            return self
        index = np.searchsorted(self.positions, wanted)
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(
            self,
            **{name: column[index] for name, column in columns.items() if column is not None},
        )


class Keeps(Enum):
    """What becomes of committed tokens, which a stream of text relies on."""

    ALL = auto()  # none is ever changed or dropped
    PREFIX = auto()  # those behind the first MASK may be: the finished beginning stands
    NOTHING = auto()  # any may be: the text is known only at the end


@dataclass(frozen=True, slots=True)
class Step:
    """Commit the predicted tokens at these positions, then edit the canvas."""

    commit: Positions
    edits: tuple[Edit, ...] = ()
    signal: float | None = None  # what the length decision was based on
    finished: bool | None = None  # None: once no MASK is left; else as the policy says
    note: str = ""  # what it found out, for people, where a record of the step cannot show it


class Policy(ABC):
    """Subclass it, set `name`, write `step`, and register it with `register_policy`."""

    name: ClassVar[str]
    #: For people: a name with its own letters, and what it does in one sentence.
    title: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    #: Its parameters: a subclass of `DecodeParams` with fields made by `setting`.
    Params: ClassVar[type[DecodeParams]] = DecodeParams
    #: The kinds of edits it may make, and what they may do to committed tokens.
    edits: ClassVar[tuple[type[Edit], ...]] = ()
    keeps: ClassVar[Keeps] = Keeps.ALL
    #: With the window cache: whether the next step may see a window only, and change no length.
    windows: bool = False
    #: Whether its canvas may stand before text that is given: a suffix, a template's next words.
    infills: ClassVar[bool] = False
    #: There an end of text is not to be chosen, unless EOS means something else to the policy.
    reads_ends: ClassVar[bool] = False
    #: What it reads; a policy whose parameters decide sets its own in `__init__`.
    needs: Needs = Needs()

    def __init__(self, params: Any, special: SpecialTokens) -> None:
        self.params = params
        self.special = special

    @classmethod  # noqa: B027 (most refuse none)
    def refuse(cls, special: SpecialTokens) -> None:
        """Raise a UserError where a model with these special tokens cannot be decoded by it."""

    @classmethod
    def signal_name(cls, params: Any) -> str:
        """What the length decision is based on, in a word."""
        confidence = getattr(params, "signal", "density") == "confidence"
        return "EOS confidence" if confidence else RHO

    @classmethod
    def explain(cls, params: Any, record: StepRecord) -> str:
        """Why a step did to the length what it did: a sentence for live views."""
        if record.signal is None:
            return _change(record)
        name = cls.signal_name(params)
        now = f"{name} = {figure(record.signal, *(params.region or ()))}"
        if params.region is None:
            return f"{now}: {_change(record)}"
        low, high = params.region
        few, most = "too few MASKs expect the end", "most MASKs expect the end"
        if name != RHO:
            few, most = "it is not sure that the text ends here", "the text surely ends here"
        if record.change > 0 and record.signal < low:
            return f"{now} < {low:g}: {few}, {_change(record)}"
        if record.change < 0 and record.signal > high:
            return f"{now} > {high:g}: {most}, {_change(record)}"
        if not record.change and not low <= record.signal <= high:
            return (
                f"{now} is outside the region, but the length is final: "
                "the text is complete, or its limit is reached."
            )
        return f"{now} is in the region: the length holds."

    def forbids(self, view: View) -> tuple[int, ...]:  # noqa: ARG002
        """Tokens that must not be chosen next, as if the model did not have them.

        EXPAND is an instruction to one policy and never text.
        """
        return () if self.special.expand is None else (self.special.expand,)

    def hides(self, view: View) -> Positions:  # noqa: ARG002
        """Positions of given text that the next forward shows as MASK, and predicts.

        Those of the suffix count on from the canvas.
        """
        return no_tokens()

    def commit(self, view: View, prediction: Prediction) -> Positions:
        """What a window step commits. It is called only where `windows` says so.

        `view.masked` are the MASKs of the window, all of which are predicted.
        """
        return self.step(view, prediction).commit

    @abstractmethod
    def step(self, view: View, prediction: Prediction) -> Step:
        """What this step commits and how it changes the canvas. Called once for each forward."""


def figure(number: float, *bounds: float) -> str:
    """With two digits, or as many as it takes to stand on the right side of its bounds."""
    for digits in range(2, 17):
        text = f"{number:.{digits}f}"
        shown = float(text)
        if all(
            (shown < bound, shown > bound) == (number < bound, number > bound) for bound in bounds
        ):
            return text
    return f"{number}"


def _change(record: StepRecord) -> str:
    if record.change > 0:
        return f"the canvas grows by {record.change}."
    return f"the canvas shrinks by {-record.change}." if record.change else "the length holds."
