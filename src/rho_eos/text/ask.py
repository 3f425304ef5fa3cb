"""What every door builds (`Ask`), and what the engine decodes (`Request`).

    Python · command line · JSON Lines · HTTP · batch · lm-eval · Ray · rollouts
        └─ Ask                        what somebody wants, as it was given
            └─ Preparer.prepare(ask)  checks it, chooses what was left open, lays out the canvas
                └─ list[Request]      one for each sample: token ids and checked parameters

An ask holds no decision: a door copies into it what it was given and nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rho_eos.decoding.automaton import Automaton
from rho_eos.decoding.canvas import Canvas, Positions
from rho_eos.decoding.params import DecodeParams
from rho_eos.text.infilling import stands_before_text
from rho_eos.text.prompts import Given, Prompt, listed

#: Decoding parameters: checked ones, or a mapping that is still to be checked.
Params = DecodeParams | Mapping[str, Any]


class LogitsProcessor(Protocol):
    """Changes the logits of one request before anything is read from them."""

    def __call__(self, id: str, canvas: Canvas, positions: Positions, logits: Any, /) -> Any:
        """The logits that the model's prediction is read from; changed in place, or new ones.

        Args:
            id: The request's, so that one processor can serve many and keep something for each.
            canvas: The sequence of which this is a prediction. It may be one of several that the
                same forward looks at.
            positions: Where the logits stand: some of those that the forward predicts. The others
                follow in further calls.
            logits: (n, vocabulary) in float32, on the model's device.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """What somebody wants of a model.

    Args:
        prompt: A text, messages, token ids, or a mapping that holds one of them under its name. It
            may be missing where there is a template.
        params: The decoding parameters of this ask. What is missing is chosen by `prepare`.
        id: The name of its request. Where there are several samples, they are `id#0`, `id#1`, …
        n: How many samples are wanted. The i-th has the seed of the ask plus i.
        raw: A text prompt is taken as it is, and no chat template is applied.
        answer_prefix: How the answer begins.
        suffix: What stands behind the answer. A text prompt is then the text before the gap.
        template: A text with gaps, or token ids with MASKs. It is the answer to a prompt, if any.
        constraint: The form of the answer: one of `regex`, `choices` and `schema` (a JSON schema),
            under its name.
        processors: Functions that change the logits.
        defaults: Decoding parameters that were given for many asks. The ask's own ones beat them.
        keep_end: Of a prompt that is too long only the end is read. Otherwise it is refused.
    """

    prompt: Prompt | None = None
    params: Params = field(default_factory=dict)
    id: str = ""
    n: int = 1
    raw: bool = False
    answer_prefix: str = ""
    suffix: Given | None = None
    template: Given | None = None
    constraint: Mapping[str, Any] | None = None
    processors: Sequence[LogitsProcessor] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    keep_end: bool = False

    def __post_init__(self) -> None:
        for name in ("prompt", "suffix", "template"):  # token ids may come as an array
            object.__setattr__(self, name, listed(getattr(self, name)))

    @property
    def is_gap(self) -> bool:
        """Whether text is given behind what is wanted, so that the canvas has to end there."""
        return stands_before_text(self.suffix, self.template)


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What is to be decoded, ready for an engine: a canvas of token ids and checked parameters."""

    id: str
    canvas: Canvas
    params: DecodeParams
    #: The texts around the gaps, one more than there are: the output's text is the filled whole.
    texts: tuple[str, ...] = ()
    automaton: Automaton | None = None  # accepts the texts that have the form that is asked for
    processors: tuple[LogitsProcessor, ...] = ()
