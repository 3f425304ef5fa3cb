"""One request in flight: its canvas, its policy, and what it has cost so far."""

import time
from dataclasses import dataclass, field

import numpy as np

from rho_eos.base.outputs import FinishReason, StepRecord, TokenLogprob, Usage
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.edits import Edit, EditError, apply_edits
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.policy import Keeps, Policy, Positions, Prediction, Step, View, no_tokens
from rho_eos.decoding.registry import find_policy
from rho_eos.engine.batch import RowInput
from rho_eos.engine.commits import Commits
from rho_eos.engine.logprobs import Logprobs
from rho_eos.engine.record import Done
from rho_eos.engine.request import Handle, as_array
from rho_eos.engine.standing import Standing, follow
from rho_eos.engine.window import Window
from rho_eos.text.streaming import TextDelta


@dataclass(slots=True, eq=False)
class Row:
    handle: Handle
    special: SpecialTokens
    prompt: np.ndarray = field(init=False)  # (P,) int64
    canvas: np.ndarray = field(init=False)  # (L,) int64
    suffix: np.ndarray = field(init=False)  # (S,) int64
    #: (L,) int64, the gap each position belongs to, -1: text that was given. None: all are one gap.
    gaps: np.ndarray | None = field(init=False)
    commits: Commits = field(init=False)  # of each position
    policy: Policy = field(init=False)
    text: TextDelta = field(init=False)
    window: Window | None = None  # with a cache
    computed: np.ndarray | None = None  # positions of the next forward; None: all
    steps: int = 0
    positions_evaluated: int = 0
    positions_exact: int = 0
    refreshes: int = 0
    committed: int = 0
    expansions: int = 0
    contractions: int = 0
    finish_reason: FinishReason | None = None
    gave_up: bool = False  # it ended among given text without being complete
    trace: list[StepRecord] = field(default_factory=list)
    _view: View | None = None  # of the next forward, once it was asked for
    logprobs: Logprobs | None = None  # where they are asked for
    waited: int = 0  # steps that it was held back, so that others could refresh
    started: float | None = None
    first_token: float | None = None

    def __post_init__(self) -> None:
        request = self.handle.request
        self.prompt = as_array(request.prompt)
        self.suffix = as_array(request.suffix)
        self.gaps = None if request.gaps is None else as_array(request.gaps)
        if request.canvas is None:
            self.canvas = np.full(self.params.first_length, self.special.mask, dtype=np.int64)
        else:
            self.canvas = as_array(request.canvas)
        self.commits = Commits.on(len(self.canvas))
        self.policy = find_policy(self.params.policy)(self.params, self.special)
        self.text = TextDelta(self.params.stop)
        if self.params.logprobs is not None:
            self.logprobs = Logprobs(len(self.canvas), self.params.logprobs)
        # A policy that never takes windows would only fill the memory.
        if self.params.cache == "window" and type(self.policy).windows is not False:
            self.window = Window(self.params, self.special, len(self.suffix))

    @property
    def id(self) -> str:
        return self.handle.request.id

    @property
    def params(self) -> DecodeParams:
        return self.handle.request.params

    @property
    def standing(self) -> Standing:
        """What stands on its canvas now."""
        count, before_suffix = self.handle.request.gap_count, len(self.suffix) > 0
        return Standing(self.canvas, self.gaps, count, self.special, before_suffix, self.gave_up)

    @property
    def masked(self) -> Positions:
        return np.flatnonzero(self.canvas == self.special.mask)

    @property
    def length(self) -> int:
        """Positions of the whole row: prompt, canvas and suffix."""
        return len(self.prompt) + len(self.canvas) + len(self.suffix)

    @property
    def first_end(self) -> int:
        """No end of text is chosen before this position: a minimum length, or given text."""
        least = self.view().behind(self.params.min_new_tokens)
        return least if self.policy.reads_ends else max(least, self.standing.last_part)

    @property
    def forbidden(self) -> tuple[int, ...]:
        """Tokens that its policy must not choose next."""
        usual = type(self.policy).forbids is Policy.forbids and self.special.expand is None
        return () if usual else self.policy.forbids(self.view())

    @property
    def exact_cost(self) -> int:
        """Positions of a forward that computes all; guidance needs a second row."""
        return (1 + (self.params.cfg_scale > 0)) * self.length

    @property
    def cost(self) -> int:
        """Positions that its next forward evaluates."""
        if self.computed is None:
            return self.exact_cost
        return (1 + (self.params.cfg_scale > 0)) * len(self.computed)

    @property
    def reads(self) -> int:
        """Positions whose logits its next forward makes."""
        return (1 + (self.params.cfg_scale > 0)) * self._wanted

    @property
    def _wanted(self) -> int:
        """Positions of its canvas that its next forward predicts."""
        everything = self.policy.needs.whole_canvas and self.computed is None
        return len(self.canvas) if everything else len(self.view().masked)

    @property
    def refreshes_next(self) -> bool:
        """With a cache: its next forward computes all that a window would not."""
        return self.window is not None and self.computed is None

    def view(self) -> View:
        """What its policy sees of the next forward: with a window, the MASKs in it."""
        if self._view is None:
            masked = self.masked
            if self.computed is not None:
                inside = np.zeros(
                    len(self.prompt) + len(self.canvas) + len(self.suffix), dtype=bool
                )
                inside[self.computed] = True
                masked = masked[inside[len(self.prompt) + masked]]
            around = (self.prompt, self.suffix, self.handle.request.sized)
            self._view = View(self.canvas, masked, self.steps, self.gaps, *around)
        return self._view

    def input(self) -> RowInput:
        """Its part of the next forward."""
        everything = self.policy.needs.whole_canvas and self.computed is None
        view = self.view()
        wanted = np.arange(len(self.canvas)) if everything else view.masked
        scale = self.params.cfg_scale
        canvas, suffix = self.canvas, self.suffix
        hidden = self.policy.hides(view) if self.policy.infills else no_tokens()
        if len(hidden):
            wanted = np.union1d(wanted, hidden)
            canvas, suffix = self._with_hidden(hidden)
        return RowInput(self.prompt, canvas, wanted, scale, self.computed, suffix)

    def _with_hidden(self, hidden: Positions) -> tuple[np.ndarray, np.ndarray]:
        """Canvas and suffix with MASK in place of some of the given text."""
        given = np.concatenate((self.standing.given, np.ones(len(self.suffix), dtype=bool)))
        if not given[hidden].all():
            raise EditError(f"policy {self.params.policy} may hide only text that was given")
        tokens = np.concatenate((self.canvas, self.suffix))
        tokens[hidden] = self.special.mask
        return tokens[: len(self.canvas)], tokens[len(self.canvas) :]

    def without_cache(self) -> None:
        """There is no room to keep anything for it: from now on every forward computes all."""
        self.window = self.computed = self._view = None

    def advance(self, view: View, prediction: Prediction) -> StepRecord:
        """One denoising step: ask the policy, commit, and unless that finished the text, edit."""
        refresh = self.computed is None
        hid = self.policy.infills and len(self.policy.hides(view)) > 0
        step = self.policy.step(view, prediction) if refresh else self._in_window(view, prediction)
        costs = self.cost, self.exact_cost
        self._count_forward(*costs, refresh)
        self._commit(step.commit, view.step, prediction)
        edits: tuple[Edit, ...] = ()
        moved = None
        if self.params.early_stop and self.standing.is_complete:
            self.finish_reason = FinishReason.STOP
        else:
            edits = step.edits
            moved = self._apply(edits) if edits else None
            if self._has_ended(step):
                self._end()
        if self.first_token is None and self.standing.returned.any():
            self.first_token = time.perf_counter()
        if self.window is not None:
            self._plan(self.window, refresh, view, prediction, step, moved)
            if hid:  # what is kept of this forward is not of the text that stands there
                self.window.stale, self.computed = True, None
        self._view = None
        done = Done(view, prediction, step, edits, moved, self.canvas, refresh, *costs)
        record = done.record(self.special)
        if self.params.trace:
            self.trace.append(record)
        return record

    def _in_window(self, view: View, prediction: Prediction) -> Step:
        """Commits within the window. A row that would end there without an end of text does not:
        its canvas may have been too short, which only a forward over all of it can tell. Where the
        policy commits nothing it wants something else, which it can have with a refresh."""
        assert self.window is not None
        commit = self.policy.commit(view, prediction)
        tokens = np.concatenate((self.canvas, prediction.at(commit).token))
        ends = len(self.suffix) > 0 or self.special.is_end(tokens).any()
        if len(commit) == len(self.masked) and not ends:
            commit = commit[:0]
        self.window.stale = self.window.stale or not len(commit)
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
        is_end = self.special.is_end
        predicted = is_end(prediction.at(view.masked).token).any()
        window.sees_end = bool(predicted or is_end(self.canvas).any())
        self.computed = None
        if self.policy.windows and self.finish_reason is None:
            self.computed = window.positions(len(self.prompt), self.canvas)

    def returned_logprobs(self) -> list[TokenLogprob] | None:
        """Those of the committed prefix, if they are asked for."""
        if self.logprobs is None:
            return None
        return self.logprobs.at(np.flatnonzero(self.standing.returned), self.canvas, self.commits)

    def usage(self) -> Usage:
        now = time.perf_counter()
        started = self.started if self.started is not None else now
        first = self.first_token
        standing = self.standing
        filled = standing.filled[~standing.given]
        not_eos = np.flatnonzero(filled != self.special.eos)
        return Usage(
            prompt_tokens=self.handle.request.given_tokens,
            n_token=len(filled),
            e_token=int(not_eos[-1]) + 1 if len(not_eos) else 0,
            nfe=self.steps,
            positions_evaluated=self.positions_evaluated,
            positions_exact=self.positions_exact,
            refreshes=self.refreshes,
            committed=self.committed,
            expansions=self.expansions,
            contractions=self.contractions,
            seconds_waiting=started - self.handle.submitted,
            seconds_running=now - started,
            seconds_to_first_token=None if first is None else first - self.handle.submitted,
        )

    def _count_forward(self, computed: int, exact: int, refresh: bool) -> None:
        self.positions_evaluated += computed
        self.positions_exact += exact
        self.refreshes += refresh
        self.steps += 1

    def _commit(self, positions: Positions, step: int, prediction: Prediction) -> None:
        if not np.all(self.canvas[positions] == self.special.mask):
            raise EditError("a policy may only commit MASK positions")
        self.canvas = self.canvas.copy()  # views of earlier steps stay as they were
        chosen = prediction.at(positions)
        self.canvas[positions] = chosen.token
        self.commits.note(positions, step, chosen.confidence)
        self.committed += len(positions)
        if self.logprobs is not None:
            self.logprobs.committed(chosen)

    def _has_ended(self, step: Step) -> bool:
        """Where the policy says so; one that says nothing ends with its last MASK."""
        if self.steps > max(1, self.handle.request.gap_count) * self.params.most_steps:
            raise EditError(f"policy {self.params.policy} does not come to an end")
        return not len(self.masked) if step.finished is None else step.finished

    def _end(self) -> None:
        """A canvas before a suffix is complete when it is full, and so is one whose ends the policy
        has taken away; any other when it has an end."""
        full = not len(self.masked)
        by_being_full = len(self.suffix) > 0 or self.policy.reads_ends
        complete = (full and by_being_full) or bool(self.standing.ends.any())
        self.finish_reason = FinishReason.STOP if complete else FinishReason.LENGTH
        among_given_text = len(self.suffix) > 0 or self.gaps is not None
        self.gave_up = not complete and among_given_text

    def _apply(self, edits: tuple[Edit, ...]) -> np.ndarray:
        """Edit the canvas, if the policy may, and return for each new position the old one."""
        for edit in edits:
            if not isinstance(edit, self.policy.edits):
                raise EditError(f"policy {self.params.policy} declares no {type(edit).__name__}")
        given = int(np.count_nonzero(self.standing.given))
        longest = self.params.max_new_tokens + given
        edited = apply_edits(self.canvas, edits, self.special.mask, longest)
        self._check_kept(edited.changed)
        if self.gaps is not None:
            self.gaps = follow(self.gaps, edited.moved)
        change = len(edited.canvas) - len(self.canvas)
        kept = edited.moved >= 0
        written = np.zeros(len(edited.canvas), dtype=bool)
        written[kept] = edited.canvas[kept] != self.canvas[edited.moved[kept]]
        self.commits = self.commits.after(edited.moved, written)
        if self.logprobs is not None:
            self.logprobs.edited(edited.moved, written)
        self.canvas = edited.canvas
        self.expansions += change > 0
        self.contractions += change < 0
        return edited.moved

    def _check_kept(self, changed: Positions) -> None:
        """Given text stays, and committed tokens as far as the policy has promised that."""
        if self.standing.given[changed].any():
            raise EditError(f"policy {self.params.policy} may not change text that was given")
        keeps = self.policy.keeps
        committed = changed[self.canvas[changed] != self.special.mask]
        if keeps is Keeps.NOTHING or not len(committed):
            return
        if keeps is Keeps.ALL or committed[0] < self.masked.min(initial=len(self.canvas)):
            raise EditError(f"policy {self.params.policy} may not change a committed token")
