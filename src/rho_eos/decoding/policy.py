"""How long: the seam of length policies.

A policy is a class in one file. It declares its name, its parameters, what it reads from a forward
and which edits it may make; `step` says how the canvas changes. Which MASKs are written is the
commit rule's business (`decoding/commit.py`), and which positions a forward computes is the
cache's (`decoding/cache.py`); every policy goes with every rule and every cache.

One policy is created for each request and may keep state. It touches no model and no device: it
reads arrays and answers with a `Step`, which the engine checks and carries out.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar

from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.canvas import Canvas, Positions
from rho_eos.decoding.edits import Edit
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.prediction import Needs, Prediction, Probe

if TYPE_CHECKING:
    from rho_eos.decoding.commit import CommitRule


class Keeps(Enum):
    """What becomes of committed tokens, which a stream of text relies on."""

    ALL = auto()  # none is ever changed or dropped
    PREFIX = auto()  # those behind the first MASK may be: the finished beginning stands
    BLOCKS = auto()  # those of the block that is being written may be: finished blocks stand
    NOTHING = auto()  # any may be: the text is known only at the end


@dataclass(frozen=True, slots=True)
class Step:
    """How the canvas changes after this step's commits."""

    edits: tuple[Edit, ...] = ()
    signal: float | None = None  # what the length decision was based on
    commit: Positions | None = None  # None: as the commit rule proposes; none at all: nothing yet
    finished: bool | None = None  # None: once no MASK is left; else as the policy says
    note: str = ""  # what it found out, for people, where a record of the step cannot show it


class Policy(ABC):
    """Subclass it, set `name`, write `step`, and register it with `register_policy`.

    The first line of its docstring says in one sentence what it does: help texts show it.
    """

    name: ClassVar[str]
    #: Its parameters: a subclass of `DecodeParams` with fields made by `setting`.
    Params: ClassVar[type[DecodeParams]] = DecodeParams
    #: The kinds of edits it may make, and what they may do to committed tokens.
    edits: ClassVar[tuple[type[Edit], ...]] = ()
    keeps: ClassVar[Keeps] = Keeps.ALL
    #: What it reads; a policy whose parameters decide sets its own in `__init__`.
    needs: Needs = Needs()
    #: The commit rule of a policy that brings its own, so that requests cannot name one. None: the
    #: rule that the request names.
    rule: "ClassVar[type[CommitRule] | None]" = None

    def __init__(self, params: Any, special: SpecialTokens) -> None:
        self.params = params
        self.special = special

    @classmethod  # noqa: B027 (most refuse none)
    def refuse(cls, special: SpecialTokens) -> None:
        """Raise a UserError where a model with these special tokens cannot be decoded by it."""

    def probes(self, canvas: Canvas) -> Sequence[Probe]:  # noqa: ARG002
        """Further canvases that the next forward predicts beside this one."""
        return ()

    @abstractmethod
    def step(self, canvas: Canvas, prediction: Prediction, commit: Positions) -> Step:
        """How the canvas changes. Called once for each forward over all positions.

        Args:
            canvas: The sequence before this step's commits.
            prediction: What the model says at its MASKs, or at more if `needs` asks.
            commit: The positions that the commit rule is about to write.
        """


class Windowed:
    """Mixed into policies that may go without a look at the whole canvas for some steps.

    With a cache most forwards compute a window. In such a step only the commit rule is asked: the
    length changes in steps that see everything.
    """

    def must_see_all(self, step: int) -> bool:  # noqa: ARG002
        """Whether the forward with this number has to compute every position."""
        return False


class Blockwise:
    """Mixed into policies that need to see no more than the block that is being written.

    A block diffusion model sees nothing behind that block, so all other policies refuse it: there
    is no tail that they could read a length from.
    """


class Infills:
    """Mixed into policies whose canvas may stand before given text: a suffix, a template."""

    #: An end of text is not chosen before given text, unless EOS means something else here.
    reads_ends: ClassVar[bool] = False

    def forbids(self, canvas: Canvas) -> tuple[int, ...]:  # noqa: ARG002
        """Tokens that must not be chosen next, as if the model did not have them.

        EXPAND is an instruction to one policy and never text.
        """
        expand: int | None = self.special.expand  # type: ignore[attr-defined]
        return () if expand is None else (expand,)
