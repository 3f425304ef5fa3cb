"""One request in flight: its canvas, its policy, and what it has cost so far."""

import time
from dataclasses import dataclass, field

import numpy as np

from rho_eos.decoding.edits import Append, Edit, EditError, apply_edits, runs
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.policy import Keeps, Policy, Positions, Prediction, Step, View
from rho_eos.decoding.registry import find_policy
from rho_eos.decoding.signal import density
from rho_eos.engine.batch import RowInput, positions_of
from rho_eos.engine.commits import Commits
from rho_eos.engine.request import Handle, as_array
from rho_eos.engine.window import Window
from rho_eos.outputs import FinishReason, StepRecord, Usage
from rho_eos.streaming import TextDelta
from rho_eos.tokens import SpecialTokens


@dataclass(slots=True, eq=False)
class Row:
    handle: Handle
    special: SpecialTokens
    prompt: np.ndarray = field(init=False)  # (P,) int64
    canvas: np.ndarray = field(init=False)  # (L,) int64
    commits: Commits = field(init=False)  # of each position
    policy: Policy = field(init=False)
    text: TextDelta = field(init=False)
    window: Window | None = None  # with a cache
    computed: np.ndarray | None = None  # positions of the next forward; None: all
    steps: int = 0
    positions_evaluated: int = 0
    positions_exact: int = 0
    committed: int = 0
    expansions: int = 0
    contractions: int = 0
    finish_reason: FinishReason | None = None
    trace: list[StepRecord] = field(default_factory=list)
    waited: int = 0  # steps that it was held back, so that others could refresh
    started: float | None = None
    first_token: float | None = None

    def __post_init__(self) -> None:
        request = self.handle.request
        self.prompt = as_array(request.prompt)
        if request.canvas is None:
            self.canvas = np.full(self.params.first_length, self.special.mask, dtype=np.int64)
        else:
            self.canvas = as_array(request.canvas)
        self.commits = Commits.on(len(self.canvas))
        self.policy = find_policy(self.params.policy)(self.params, self.special)
        self.text = TextDelta(self.params.stop)
        # A policy that never takes windows would only fill the memory.
        if self.params.cache == "window" and type(self.policy).windows is not False:
            self.window = Window(self.params, self.special)

    @property
    def id(self) -> str:
        return self.handle.request.id

    @property
    def params(self) -> DecodeParams:
        return self.handle.request.params

    @property
    def masked(self) -> Positions:
        return np.flatnonzero(self.canvas == self.special.mask)

    @property
    def exact_cost(self) -> int:
        """Positions of a forward that computes all."""
        return positions_of(self.prompt, self.canvas, self.params.cfg_scale)

    @property
    def cost(self) -> int:
        """Positions that its next forward evaluates."""
        if self.computed is None:
            return self.exact_cost
        return (1 + (self.params.cfg_scale > 0)) * len(self.computed)

    @property
    def reads(self) -> int:
        """Positions whose logits its next forward makes."""
        return (1 + (self.params.cfg_scale > 0)) * len(self.input().wanted)

    @property
    def refreshes_next(self) -> bool:
        """With a cache: its next forward computes all that a window would not."""
        return self.window is not None and self.computed is None

    def view(self) -> View:
        """What its policy sees of the next forward: with a window, the MASKs in it."""
        masked = self.masked
        if self.computed is not None:
            masked = masked[np.isin(len(self.prompt) + masked, self.computed)]
        return View(self.canvas, masked, self.steps)

    def input(self) -> RowInput:
        """Its part of the next forward."""
        everything = self.policy.needs.whole_canvas and self.computed is None
        wanted = np.arange(len(self.canvas)) if everything else self.view().masked
        scale = self.params.cfg_scale
        return RowInput(self.prompt, self.canvas, wanted, scale, self.computed)

    def without_cache(self) -> None:
        """There is no room to keep anything for it: from now on every forward computes all."""
        self.window = self.computed = None

    def advance(self, view: View, prediction: Prediction) -> StepRecord:
        """One denoising step: ask the policy, commit, and unless that finished the text, edit."""
        refresh = self.computed is None
        step = self.policy.step(view, prediction) if refresh else self._in_window(view, prediction)
        cost = self.cost
        self._count_forward()
        self._commit(step.commit, view.step, prediction)
        edits: tuple[Edit, ...] = ()
        moved = None
        if self.params.early_stop and self._text_is_complete():
            self.finish_reason = FinishReason.STOP
        else:
            edits = step.edits
            moved = self._apply(edits) if edits else None
            if self._has_ended(step):
                self.finish_reason = self._reason_at_the_end()
        if self.first_token is None and len(self.committed_prefix()):
            self.first_token = time.perf_counter()
        if self.window is not None:
            self._plan(self.window, refresh, view, prediction, step, moved)
        record = self._record(view, prediction, step, edits, moved, refresh, cost)
        if self.params.trace:
            self.trace.append(record)
        return record

    def _in_window(self, view: View, prediction: Prediction) -> Step:
        """Commits within the window. A row that would end there without an end of text does not:
        its canvas may have been too short, which only a forward over all of it can tell."""
        assert self.window is not None
        commit = self.policy.commit(view, prediction)
        tokens = np.concatenate((self.canvas, prediction.at(commit).token))
        if len(commit) == len(self.masked) and not np.isin(tokens, self.special.ends).any():
            self.window.stale = True
            commit = commit[:0]
        return Step(commit)

    def _plan(
        self,
        window: Window,
        refresh: bool,
        view: View,
        prediction: Prediction,
        step: Step,
        moved: np.ndarray | None,
    ) -> None:
        """What the next forward computes."""
        if refresh:
            window.refreshed(view.length)
        window.committed(step.commit, prediction.at(step.commit).confidence)
        if moved is not None:
            window.moved(moved)
        ends = self.special.ends
        predicted = np.isin(prediction.at(view.masked).token, ends).any()
        window.sees_end = bool(predicted or np.isin(self.canvas, ends).any())
        self.computed = None
        if self.policy.windows and self.finish_reason is None:
            self.computed = window.positions(len(self.prompt), self.canvas)

    def committed_prefix(self) -> np.ndarray:
        """The tokens before the first MASK or end: they are final, so they can be sent."""
        closed = np.isin(self.canvas, (self.special.mask, *self.special.ends))
        return self.canvas[: int(np.argmax(closed))] if closed.any() else self.canvas

    def final_canvas(self) -> np.ndarray:
        """The canvas with what was never decoded behind the end reported as EOS."""
        return np.where(self.canvas == self.special.mask, self.special.eos, self.canvas)

    def usage(self) -> Usage:
        now = time.perf_counter()
        started = self.started if self.started is not None else now
        first = self.first_token
        not_eos = np.flatnonzero(self.final_canvas() != self.special.eos)
        return Usage(
            prompt_tokens=len(self.prompt),
            n_token=len(self.canvas),
            e_token=int(not_eos[-1]) + 1 if len(not_eos) else 0,
            nfe=self.steps,
            positions_evaluated=self.positions_evaluated,
            positions_exact=self.positions_exact,
            refreshes=self.steps if self.window is None else self.window.refreshes,
            committed=self.committed,
            expansions=self.expansions,
            contractions=self.contractions,
            seconds_waiting=started - self.handle.submitted,
            seconds_running=now - started,
            seconds_to_first_token=None if first is None else first - self.handle.submitted,
        )

    def _count_forward(self) -> None:
        self.positions_evaluated += self.cost
        self.positions_exact += self.exact_cost
        self.steps += 1

    def _commit(self, positions: Positions, step: int, prediction: Prediction) -> None:
        if not np.all(self.canvas[positions] == self.special.mask):
            raise EditError("a policy may only commit MASK positions")
        self.canvas = self.canvas.copy()  # views of earlier steps stay as they were
        chosen = prediction.at(positions)
        self.canvas[positions] = chosen.token
        self.commits.note(positions, step, chosen.confidence)
        self.committed += len(positions)

    def _text_is_complete(self) -> bool:
        """No MASK is left before the first committed end: later positions are never returned."""
        ends = np.flatnonzero(np.isin(self.canvas, self.special.ends))
        return len(ends) > 0 and not np.any(self.canvas[: ends[0]] == self.special.mask)

    def _has_ended(self, step: Step) -> bool:
        """Where the policy says so; one that says nothing ends with its last MASK."""
        if self.steps > 4 * self.params.max_new_tokens + 64:
            raise EditError(f"policy {self.params.policy} does not come to an end")
        return not len(self.masked) if step.finished is None else step.finished

    def _reason_at_the_end(self) -> FinishReason:
        ended = np.isin(self.canvas, self.special.ends).any()
        return FinishReason.STOP if ended else FinishReason.LENGTH

    def _apply(self, edits: tuple[Edit, ...]) -> np.ndarray:
        """Edit the canvas, if the policy may, and return for each new position the old one."""
        for edit in edits:
            if not isinstance(edit, self.policy.edits):
                raise EditError(f"policy {self.params.policy} declares no {type(edit).__name__}")
        edited = apply_edits(self.canvas, edits, self.special.mask, self.params.max_new_tokens)
        self._check_kept(edited.changed)
        change = len(edited.canvas) - len(self.canvas)
        kept = edited.moved >= 0
        written = np.zeros(len(edited.canvas), dtype=bool)
        written[kept] = edited.canvas[kept] != self.canvas[edited.moved[kept]]
        self.commits = self.commits.after(edited.moved, written)
        self.canvas = edited.canvas
        self.expansions += change > 0
        self.contractions += change < 0
        return edited.moved

    def _check_kept(self, changed: Positions) -> None:
        """Committed tokens stay, as far as the policy has promised that they do."""
        keeps = self.policy.keeps
        committed = changed[self.canvas[changed] != self.special.mask]
        if keeps is Keeps.NOTHING or not len(committed):
            return
        if keeps is Keeps.ALL or committed[0] < self.masked.min(initial=len(self.canvas)):
            raise EditError(f"policy {self.params.policy} may not change a committed token")

    def _record(
        self,
        view: View,
        prediction: Prediction,
        step: Step,
        edits: tuple[Edit, ...],
        moved: np.ndarray | None,
        refresh: bool,
        cost: int,
    ) -> StepRecord:
        chosen = prediction.at(step.commit)
        committed = zip(
            chosen.positions.tolist(),
            chosen.token.tolist(),
            chosen.confidence.tolist(),
            strict=True,
        )
        return StepRecord(
            step=view.step,
            length=view.length,
            masks=int(np.count_nonzero(view.canvas == self.special.mask)),
            rho=density(view, prediction, self.special.eos) if refresh else None,
            signal=step.signal,
            action=_name(edits),
            change=len(self.canvas) - view.length,
            computed=cost,
            refresh=refresh,
            committed=tuple(committed),
            moved=None if moved is None else tuple(runs(moved)),
            written=() if moved is None else self._written(view, step, chosen, moved),
        )

    def _written(
        self, view: View, step: Step, chosen: Prediction, moved: np.ndarray
    ) -> tuple[tuple[int, int | None], ...]:
        """What edits put on the canvas beyond new MASKs."""
        before = view.canvas.copy()
        before[step.commit] = chosen.token
        expected = np.where(moved < 0, self.special.mask, before[moved] if len(before) else moved)
        return tuple(
            (int(at), None if self.canvas[at] == self.special.mask else int(self.canvas[at]))
            for at in np.flatnonzero(self.canvas != expected)
        )


def _name(edits: tuple[Edit, ...]) -> str:
    """The first edit in a word."""
    if not edits:
        return "hold"
    closes = isinstance(edits[0], Append) and edits[0].token is not None
    return "close" if closes else edits[0].verb
