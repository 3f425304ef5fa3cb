"""What a request gives back: the text, and honest figures of what it cost."""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

_SHOWN = 60  # characters of a text in a `repr`


class FinishReason(StrEnum):
    STOP = "stop"  # EOS, end of turn or a stop string
    LENGTH = "length"  # the canvas is full and no EOS came
    CANCELLED = "cancelled"
    ERROR = "error"  # it failed; `Output.error` says why
    GOLD = "gold"  # a reference answer: no model was asked


@dataclass(frozen=True, slots=True)
class Usage:
    """What a request cost, as docs/method.md §7 defines it. `positions_evaluated` counts the
    positions that all forwards computed."""

    prompt_tokens: int = 0
    n_token: int = 0  # final canvas length, without text that was given
    e_token: int = 0  # the same, less trailing EOS
    nfe: int = 0
    positions_evaluated: int = 0
    positions_exact: int = 0  # what the same steps would have computed without a cache
    positions_reused: int = 0  # of the prompt, whose keys and values were kept from other requests
    refreshes: int = 0  # forwards over all positions
    committed: int = 0
    expansions: int = 0
    contractions: int = 0
    seconds_waiting: float = 0.0  # from submission to the first forward
    seconds_running: float = 0.0
    seconds_to_first_token: float | None = None  # from submission until a token was final

    @property
    def e_ratio(self) -> float:
        return self.e_token / self.n_token if self.n_token else 0.0

    @property
    def tokens_per_forward(self) -> float:
        return self.committed / self.nfe if self.nfe else 0.0

    @property
    def adjustments(self) -> int:
        return self.expansions + self.contractions

    def as_dict(self) -> dict[str, Any]:
        derived = ("e_ratio", "tokens_per_forward", "adjustments")
        return asdict(self) | {name: getattr(self, name) for name in derived}


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token of the text and how likely the model found it in the step that committed it.

    Over the whole vocabulary, before temperature, top-k and top-p; 0 where nothing was predicted.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # the likeliest tokens there, if any were asked for

    def as_dict(self) -> dict[str, Any]:
        return {"token_id": self.token, "logprob": self.logprob, "top": [*map(list, self.top)]}


@dataclass(frozen=True, slots=True)
class Foretold:
    """What a forward says of the length of the text (F, docs/method.md §3), in a few numbers."""

    expected: float  # tokens; what may come behind the canvas is not counted
    soft_rho: float | None  # the mean of P(EOS) over the MASKs
    #: Lengths that suffice with probability 0.1, 0.25, 0.5, 0.75 and 0.9; None: longer than L.
    quantiles: tuple[int | None, ...]
    curve: tuple[float, ...]  # F at 33 lengths from 0 to L


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One forward of one sequence, for people and plots. Positions are canvas indices."""

    step: int
    length: int  # L during the forward
    masks: int  # MASKs before this step's commits
    rho: float | None  # implicit EOS density, whatever signal steers
    signal: float | None  # the number the length decision was based on
    action: str  # hold, expand, contract, insert, delete, overwrite, close (append committed EOS)
    change: int  # by how much L changed after the forward
    computed: int = 0  # positions of the forward
    exact: int = 0  # what it would have computed without a cache
    #: Whether it saw all that there is to see. If not, there is no ρ and no length decision.
    refresh: bool = True
    #: Of a block diffusion model: the first cell of the block being written, and the end of it.
    block: tuple[int, int] | None = None
    committed: tuple[tuple[int, int, float], ...] = ()  # (position, token, confidence)
    #: Where each position of the next canvas comes from: (first old position, how many), None for
    #: new MASKs. None as a whole: nothing moved.
    moved: tuple[tuple[int | None, int], ...] | None = None
    written: tuple[tuple[int, int | None], ...] = ()  # by edits: (new position, token; None: MASK)
    note: str = ""  # what the policy found out in this step, in a sentence, if anything
    #: What it says of the length, where somebody watches or keeps a trace and all of it was seen.
    foretold: Foretold | None = None
    #: With `trace="positions"`: (position, token, confidence, P(EOS)) at each MASK that the forward
    #: predicted, before this step's commits.
    open: tuple[tuple[int, int, float, float], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; `open` only where there is any."""
        fields = asdict(self)
        return fields if self.open else {k: v for k, v in fields.items() if k != "open"}


@dataclass(frozen=True, slots=True, repr=False)
class Output:
    """The result of one request: the tokens of the text, and all tokens of the final canvas.

    If the request has a suffix, both lie between the prompt and the suffix. If it is a template,
    `text` is the whole template with its gaps filled, `token_ids` is what fills the gaps, and the
    canvas also holds the text between them.

    Positions behind the end that were never decoded (early stop) are reported as EOS, so no MASK id
    ever leaves the engine.

    `token_positions` says where on the final canvas each of `token_ids` stands. The four lists
    `commit_…` have an entry for each position of the final canvas: in which step the model
    committed its token, where that token stood then, how probable it was, and how probable it was
    that it is drawn: after temperature, `top_k` and `top_p`, 1 where nothing is drawn. They are
    -1, -1, 0 and 0 where the model committed nothing: the position was never decoded, or its token
    was given or written by an edit.
    """

    id: str
    text: str
    finish_reason: FinishReason
    token_ids: list[int] = field(default_factory=list)
    token_positions: list[int] = field(default_factory=list)
    canvas_token_ids: list[int] = field(default_factory=list)
    commit_steps: list[int] = field(default_factory=list)
    commit_positions: list[int] = field(default_factory=list)
    commit_probabilities: list[float] = field(default_factory=list)
    commit_drawn: list[float] = field(default_factory=list)
    usage: Usage = Usage()
    trace: list[StepRecord] = field(default_factory=list)
    logprobs: list[TokenLogprob] | None = None  # of `token_ids`, where they were asked for
    error: str | None = None
    #: How often the weights had been replaced when it began; it ran on these weights to its end.
    weights_version: int = 0
    gaps: list[str] = field(default_factory=list)  # of a template: what fills each of its gaps

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= _SHOWN else self.text[:_SHOWN] + "…"
        cost = f"{self.usage.e_token} of {self.usage.n_token} tokens, {self.usage.nfe} forwards"
        end = f"{self.finish_reason}: {self.error}" if self.error else f"{self.finish_reason}"
        return f"<Output {self.id}: {text!r}, {end}, {cost}>"

    def positions(self) -> dict[str, list[Any]]:
        """What the model said at every open MASK in every step, with `trace="positions"`.

        Columns of one length, for `pandas.DataFrame(output.positions())`: the step, the position on
        the canvas of that step, the token, its probability (`confidence`), P(EOS), and whether this
        token was committed there in this step.
        """
        rows = [
            (record.step, *each, (each[0], each[1]) in written)
            for record in self.trace
            for written in [{(at, token) for at, token, _ in record.committed}]
            for each in record.open
        ]
        names = ("step", "position", "token", "confidence", "p_eos", "committed")
        return {name: [row[at] for row in rows] for at, name in enumerate(names)}

    def as_dict(self, commits: bool = False) -> dict[str, Any]:
        """A JSON-ready line; log-probabilities and trace only where they were asked for, and with
        `commits` the step and the probability of each of `token_ids`."""
        line: dict[str, Any] = {
            "id": self.id,
            "text": self.text,
            "token_ids": self.token_ids,
            "canvas_token_ids": self.canvas_token_ids,
            "finish_reason": self.finish_reason.value,
            **self.usage.as_dict(),
        }
        if self.gaps:
            line["gaps"] = self.gaps
        if self.logprobs is not None:
            line["logprobs"] = [each.as_dict() for each in self.logprobs]
        if commits:
            at = self.token_positions
            line["commit_steps"] = [self.commit_steps[each] for each in at]
            line["commit_probabilities"] = [self.commit_probabilities[each] for each in at]
        if self.trace:
            line["trace"] = [record.as_dict() for record in self.trace]
        return line
