"""One request in flight: its canvas, what decodes it, and what it has cost so far."""

import time
from dataclasses import dataclass, field, replace

import numpy as np

from rho_eos.base.outputs import FinishReason, StepRecord, TokenLogprob, Usage
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.cache import Cache
from rho_eos.decoding.canvas import Canvas, Positions, no_positions
from rho_eos.decoding.commit import Commit, CommitRule, first_open_block
from rho_eos.decoding.edits import Edit, EditError, Overwrite
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.policy import Infills, Keeps, Policy, Step, Windowed
from rho_eos.decoding.prediction import Needs, Prediction
from rho_eos.decoding.signal import will_end, with_divergence
from rho_eos.engine.batch import RowInput
from rho_eos.engine.logprobs import keep_alternatives, logprobs_of
from rho_eos.engine.record import record_of
from rho_eos.engine.request import Handle
from rho_eos.text.streaming import TextDelta


@dataclass(frozen=True, slots=True)
class Asked:
    """One canvas of a forward: a row's own, or one of its probes."""

    canvas: Canvas
    input: RowInput
    tokens: np.ndarray | None = None  # whose probability a probe asks for
    is_probe: bool = False


@dataclass(frozen=True, slots=True)
class Forward:
    """What a row asks of its next forward: its own canvas, then its probes."""

    asked: tuple[Asked, ...]
    of_policy: int  # how many of the probes are the policy's; the others are the commit rule's

    @property
    def computed(self) -> Positions | None:
        """The positions of the row that are computed; None: all."""
        return self.asked[0].input.computed


@dataclass(slots=True, eq=False)
class Row:
    """A request, its policy, commit rule and cache, and its cost."""

    handle: Handle
    canvas: Canvas = field(init=False)
    policy: Policy = field(init=False)
    rule: CommitRule = field(init=False)
    cache: Cache | None = field(init=False)
    needs: Needs = field(init=False)
    text: TextDelta = field(init=False)
    positions_evaluated: int = 0
    positions_exact: int = 0
    refreshes: int = 0
    committed: int = 0
    expansions: int = 0
    contractions: int = 0
    finish_reason: FinishReason | None = None
    trace: list[StepRecord] = field(default_factory=list)
    waited: int = 0  # steps that it was held back, so that others could refresh
    started: float | None = None
    first_token: float | None = None
    asking: str = ""  # whose code runs, for the sentence that says what failed
    _forward: Forward | None = None  # the next one, once it was planned

    def __post_init__(self) -> None:
        self.canvas = self.handle.request.canvas
        params, special = self.params, self.special
        assert params.parts is not None
        policy, rule, cache = params.parts
        self.policy, self.rule = policy(params, special), rule(params, special)
        # A policy that has to see everything in every step would only fill the memory.
        windowed = cache is not None and issubclass(policy, Windowed)
        self.cache = cache(params, special) if cache is not None and windowed else None
        self.needs = self.policy.needs | self.rule.needs | Needs(top=params.logprobs or 0)
        self.text = TextDelta(params.stop)

    @property
    def id(self) -> str:
        return self.handle.request.id

    @property
    def params(self) -> DecodeParams:
        return self.handle.request.params

    @property
    def special(self) -> SpecialTokens:
        return self.canvas.special

    # ── the next forward ─────────────────────────────────────────────────────────────────────

    @property
    def forward(self) -> Forward:
        """The next one. It was planned with the last step, so that what fails belongs to it."""
        if self._forward is None:
            self.plan()
        assert self._forward is not None
        return self._forward

    def plan(self) -> None:
        """Decide what the next forward computes and predicts."""
        canvas, policy = self.canvas, self.policy
        computed, wanted = None, canvas.masked
        may_spare = isinstance(policy, Windowed) and not policy.must_see_all(canvas.step)
        if may_spare and self.cache is not None:
            self.asking = f"cache {self.cache.name}"
            computed = self.cache.positions(canvas)
        if computed is not None:
            wanted = wanted[np.isin(len(canvas.prompt) + wanted, computed)]
        elif self.needs.whole_canvas:
            wanted = np.arange(canvas.length)
        self.asking = f"policy {self.params.policy}"
        own = policy.probes(canvas) if computed is None else ()
        self.asking = f"commit rule {self.rule.name}"
        asked = [Asked(canvas, self._input(canvas, wanted, computed))]
        for probe in (*own, *self.rule.probes(canvas)):
            given = self._input(probe.canvas, probe.read)
            asked.append(Asked(probe.canvas, given, probe.tokens, is_probe=True))
        self._forward = Forward(tuple(asked), len(own))
        self.asking = f"policy {self.params.policy}"

    def _input(
        self, canvas: Canvas, wanted: Positions, computed: Positions | None = None
    ) -> RowInput:
        scale = self.params.cfg_scale
        return RowInput(canvas.prompt, canvas.cells, wanted, scale, computed, canvas.suffix)

    @property
    def exact_cost(self) -> int:
        """Positions of its next forward if it computed all; guidance needs every row twice."""
        return self.copies * sum(each.input.length for each in self.forward.asked)

    @property
    def cost(self) -> int:
        """Positions that its next forward evaluates."""
        computed = self.forward.computed
        spared = 0 if computed is None else self.canvas.row_length - len(computed)
        return self.exact_cost - self.copies * spared

    @property
    def reads(self) -> int:
        """Positions whose logits its next forward makes."""
        return self.copies * sum(len(each.input.wanted) for each in self.forward.asked)

    @property
    def copies(self) -> int:
        """How often each of its canvases is forwarded: once more where there is guidance."""
        return 1 + (self.params.cfg_scale > 0)

    @property
    def refreshes_next(self) -> bool:
        """With a cache: its next forward computes all that a window would not."""
        return self.cache is not None and self.forward.computed is None

    def first_end(self, canvas: Canvas) -> int:
        """No end of text is chosen before this cell: a minimum length, or given text."""
        least = canvas.behind(self.params.min_new_tokens)
        reads_ends = isinstance(self.policy, Infills) and self.policy.reads_ends
        return least if reads_ends else max(least, canvas.last_part)

    def forbidden(self, canvas: Canvas) -> tuple[int, ...]:
        """Tokens that must not be chosen next."""
        if self.special.expand is None:
            return ()
        if isinstance(self.policy, Infills):
            return self.policy.forbids(canvas)
        return (self.special.expand,)

    def without_cache(self) -> None:
        """There is no room to keep anything for it: from now on every forward computes all."""
        self.cache = self._forward = None

    # ── a step ───────────────────────────────────────────────────────────────────────────────

    def advance(self, prediction: Prediction) -> StepRecord:
        """One denoising step: ask rule and policy, commit, and unless that ended the text, edit."""
        before, forward = self.canvas, self.forward
        costs = self.cost, self.exact_cost
        refresh = forward.computed is None
        if self.needs.divergence:
            prediction = with_divergence(before, prediction)
        proposed = self._propose(prediction, forward)
        if refresh:
            own = replace(prediction, probes=prediction.probes[: forward.of_policy])
            step = self.policy.step(before, own, proposed.positions)
        else:
            step = self._in_window(prediction, proposed.positions)
        commit, remask = proposed.positions, proposed.remask
        if step.commit is not None:
            commit, remask = step.commit, no_positions()
        self.positions_evaluated += costs[0]
        self.positions_exact += costs[1]
        self.refreshes += refresh
        chosen = prediction.at(commit)
        self.canvas = before.commit(commit, chosen.token, chosen.confidence)
        if self.params.logprobs:
            keep_alternatives(self.canvas, chosen, self.params.logprobs)
        self.committed += len(commit)
        edits, moved = self._edit(step, remask)
        if self.first_token is None and len(self.final.returned):
            self.first_token = time.perf_counter()
        if self.cache is not None:
            if refresh:
                self.cache.refreshed(before)
            self.cache.committed(before, prediction, np.union1d(commit, remask))
            if moved is not None:
                self.cache.moved(moved, self.canvas)
        record = record_of(
            before, prediction, step, commit, edits, moved, self.canvas, refresh, *costs
        )
        if self.params.trace:
            self.trace.append(record)
        self._forward = None
        if self.finish_reason is None:
            self.plan()
        return record

    def _propose(self, prediction: Prediction, forward: Forward) -> Commit:
        """What the commit rule would write and take back."""
        masked = prediction.among(self.canvas.masked)
        size: int | None = getattr(self.params, "block_length", None)
        candidates = prediction.at(first_open_block(masked, size))
        if not len(candidates.positions):
            return Commit(no_positions())
        own = prediction.probes[forward.of_policy :]
        self.asking = f"commit rule {self.rule.name}"
        answer = self.rule(self.canvas, replace(candidates, probes=own))
        commit = answer if isinstance(answer, Commit) else Commit(answer)
        self._check_taken_back(commit.remask)
        if not np.isin(commit.positions, candidates.positions).all():
            raise EditError(f"commit rule {self.rule.name} may commit candidates only")
        self.asking = f"policy {self.params.policy}"
        return commit

    def _in_window(self, prediction: Prediction, commit: Positions) -> Step:
        """A row whose policy changes the length does not end in a window without an end of text:
        its canvas may have been too short, which only a forward over all of it can tell. Where
        nothing is committed, something else is wanted, which a refresh may bring."""
        assert self.cache is not None
        canvas = self.canvas
        keeps_length = len(canvas.suffix) > 0 or not self.policy.edits
        ends = keeps_length or will_end(canvas, prediction, commit)
        if len(commit) == len(canvas.masked) and not ends:
            commit = no_positions()
        self.cache.stale = self.cache.stale or not len(commit)
        return Step() if len(commit) else Step(commit=no_positions())

    def _edit(self, step: Step, remask: Positions) -> tuple[tuple[Edit, ...], np.ndarray | None]:
        """Take back what the rule takes back; unless the text is complete, edit; perhaps end."""
        taken: tuple[Edit, ...] = ()
        if len(remask):
            taken = (Overwrite(remask, np.full(len(remask), self.special.mask)),)
        stays = self.canvas.hidden(remask) if len(remask) else self.canvas
        if self.params.early_stop and self._final(stays).is_complete:
            moved = self._apply(taken, ()) if taken else None
            self.finish_reason = FinishReason.STOP
            return (), moved
        moved = self._apply(taken, step.edits) if taken or step.edits else None
        if self._has_ended(step):
            self._end()
        return step.edits, moved

    def _apply(self, taken: tuple[Edit, ...], edits: tuple[Edit, ...]) -> np.ndarray:
        """Edit the canvas, if the policy may; returns for each new cell the old position."""
        for edit in edits:
            if not isinstance(edit, self.policy.edits):
                raise EditError(f"policy {self.params.policy} declares no {type(edit).__name__}")
        longest = self.params.max_new_tokens
        if edits:
            self._check_kept(self.canvas.edit(edits, longest).changed)
        edited = self.canvas.edit((*taken, *edits), longest)
        change = edited.canvas.length - self.canvas.length
        self.expansions += change > 0
        self.contractions += change < 0
        self.canvas = edited.canvas
        return edited.moved

    def _check_kept(self, changed: Positions) -> None:
        """Given text stays, and committed tokens as far as the policy has promised that."""
        canvas, name = self.canvas, self.params.policy
        if canvas.given[changed].any():
            raise EditError(f"policy {name} may not change text that was given")
        keeps = self.policy.keeps
        committed = changed[canvas.cells[changed] != self.special.mask]
        if keeps is Keeps.NOTHING or not len(committed):
            return
        if keeps is Keeps.ALL or committed[0] < canvas.masked.min(initial=canvas.length):
            raise EditError(f"policy {name} may not change a committed token")

    def _check_taken_back(self, remask: Positions) -> None:
        """A rule takes back only what it wrote in the open block, if it says that it does."""
        if not len(remask):
            return
        name = self.rule.name
        if self.rule.keeps is not Keeps.BLOCKS or self.canvas.given[remask].any():
            raise EditError(f"commit rule {name} may not take these tokens back")
        if remask[0] < self._open_block(self.canvas):
            raise EditError(f"commit rule {name} may not reopen a finished block")

    def _has_ended(self, step: Step) -> bool:
        """Where the policy says so; one that says nothing ends with its last MASK."""
        canvas = self.canvas
        if canvas.step > max(1, canvas.gap_count) * self.params.most_steps:
            raise EditError(f"policy {self.params.policy} does not come to an end")
        return not len(canvas.masked) if step.finished is None else step.finished

    def _end(self) -> None:
        """A canvas before a suffix is complete when it is full, and so is one whose ends the policy
        has taken away; any other when it has an end."""
        canvas = self.canvas
        full = not len(canvas.masked)
        reads_ends = isinstance(self.policy, Infills) and self.policy.reads_ends
        complete = (full and (len(canvas.suffix) > 0 or reads_ends)) or bool(canvas.ends.any())
        self.finish_reason = FinishReason.STOP if complete else FinishReason.LENGTH
        if not complete and (len(canvas.suffix) > 0 or canvas.gaps is not None):
            self.canvas = replace(canvas, gave_up=True)

    # ── what comes of it ─────────────────────────────────────────────────────────────────────

    @property
    def final(self) -> Canvas:
        """The canvas with MASK where a token may still change, so that its text is final."""
        if self.finish_reason is not None:
            return self.canvas
        if self.policy.keeps is Keeps.NOTHING:
            return self.canvas.hidden(np.flatnonzero(~self.canvas.given))
        return self._final(self.canvas)

    def _final(self, canvas: Canvas) -> Canvas:
        """For a rule that takes tokens back, those of the open block are not final yet."""
        if self.rule.keeps is not Keeps.BLOCKS or not len(canvas.masked):
            return canvas
        behind = np.arange(self._open_block(canvas), canvas.length)
        return canvas.hidden(behind[~canvas.given[behind]])

    def _open_block(self, canvas: Canvas) -> int:
        """The first cell of the block that is being written."""
        size: int | None = getattr(self.params, "block_length", None)
        return int(canvas.masked[0]) // size * size if size is not None else 0

    def logprobs(self) -> list[TokenLogprob] | None:
        """Those of the final text, if they are asked for."""
        if self.params.logprobs is None:
            return None
        return logprobs_of(self.final)

    def usage(self) -> Usage:
        now = time.perf_counter()
        started = self.started if self.started is not None else now
        first, canvas = self.first_token, self.canvas
        filled = canvas.filled[~canvas.given]
        not_eos = np.flatnonzero(filled != self.special.eos)
        return Usage(
            prompt_tokens=canvas.given_length,
            n_token=len(filled),
            e_token=int(not_eos[-1]) + 1 if len(not_eos) else 0,
            nfe=canvas.step,
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
