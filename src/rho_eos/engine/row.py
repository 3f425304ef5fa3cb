"""One request in flight: its canvas, what decodes it, and what it has cost so far."""

import time
from dataclasses import dataclass, field, replace

import numpy as np

from rho_eos.base.outputs import FinishReason, StepRecord, TokenLogprob, Usage
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.cache import BlockCache, Cache
from rho_eos.decoding.canvas import Canvas, Positions, no_positions
from rho_eos.decoding.commit import MOST_POST_STEPS, Commit, CommitRule
from rho_eos.decoding.edits import Edit, EditError, Overwrite
from rho_eos.decoding.form import Form
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.policy import Infills, Keeps, Policy, Step, Windowed
from rho_eos.decoding.prediction import Needs, Prediction
from rho_eos.decoding.signal import will_end, with_divergence
from rho_eos.engine.checks import check_edits, check_rewritten
from rho_eos.engine.cost import Cost
from rho_eos.engine.forward import Forward, wanted_cells
from rho_eos.engine.logprobs import keep_alternatives, logprobs_of
from rho_eos.engine.record import record_of
from rho_eos.engine.request import Detail, Handle
from rho_eos.text.streaming import TextDelta


@dataclass(slots=True, eq=False)
class Row:
    """A request, its policy, commit rule and cache, and its cost."""

    handle: Handle
    canvas: Canvas = field(init=False)
    policy: Policy = field(init=False)
    rule: CommitRule = field(init=False)
    cache: Cache | None = field(init=False)
    form: Form | None = field(init=False)  # what its text has to be, if anything
    needs: Needs = field(init=False)
    text: TextDelta = field(init=False)
    spent: Cost = field(default_factory=Cost)
    finish_reason: FinishReason | None = None
    trace: list[StepRecord] = field(default_factory=list)
    post_steps: int = 0  # steps in which the open block had no MASK any more
    held_since: int = 0  # so many of the last steps in a row were such, over a block without MASKs
    idle: bool = False  # whether the last forward predicted nothing
    weights_version: int = 0  # of the engine when it began
    closing: bool = False  # its policy is done, but what it writes is not
    waited: int = 0  # steps that it was held back, so that others could refresh
    asking: str = ""  # whose code runs, for the sentence that says what failed
    _forward: Forward | None = None  # the next one, once it was planned

    def __post_init__(self) -> None:
        self.canvas = self.handle.request.canvas
        params, special = self.params, self.special
        assert params.parts is not None
        policy, rule, cache = params.parts
        self.policy, self.rule = policy(params, special), rule(params, special)
        automaton = self.handle.request.automaton
        self.form = Form.of(automaton, params, policy) if automaton is not None else None
        # A policy that has to see everything in every step would only fill the memory.
        useful = cache is not None and (cache.for_blocks or issubclass(policy, Windowed))
        self.cache = cache(params, special) if cache is not None and useful else None
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
        computed = None
        looks = isinstance(policy, Windowed) and policy.must_see_all(canvas.step)
        if self.cache is not None and not looks:
            self.asking = f"cache {self.cache.name}"
            computed = self.cache.positions(canvas)
            if computed is not None and not len(computed):
                raise EditError(f"cache {self.cache.name} has the next forward compute nothing")
        self.asking = f"policy {self.params.policy}"
        own = policy.probes(canvas) if computed is None else ()
        self.asking = f"commit rule {self.rule.name}"
        probes = (*own, *self.rule.probes(canvas))
        reader = self.policy.needs | self.rule.needs if computed is None else self.rule.needs
        wanted = wanted_cells(canvas, computed, reader.whole_canvas)
        self._forward = Forward.of(
            canvas, wanted, computed, probes, len(own), self.params.cfg_scale
        )
        self.asking = f"policy {self.params.policy}"

    @property
    def cost(self) -> int:
        """Positions that its next forward evaluates."""
        return self.forward.cost

    @property
    def reads(self) -> int:
        """Positions whose logits its next forward makes."""
        return self.forward.reads

    @property
    def copies(self) -> int:
        """How often each of its canvases is forwarded: once more where there is guidance."""
        return 1 + (self.params.cfg_scale > 0)

    @property
    def refreshes_next(self) -> bool:
        """With a cache: its next forward computes all that a window would not."""
        return self.cache is not None and self.forward.computed is None

    @property
    def shared(self) -> BlockCache | None:
        """Its cache, if the row may share blocks with others; else None. It may not where blocks
        are counted from the end of the prompt, since equal tokens then lie in other blocks, nor
        with guidance, which also computes the row with its prompt hidden."""
        blocks = self.canvas.blocks
        absolute = blocks is not None and blocks.alignment == "absolute"
        alone = absolute and self.copies == 1
        return self.cache if isinstance(self.cache, BlockCache) and alone else None

    def reuse(self, count: int) -> None:
        """Keys and values of its first `count` positions are there already, from another row."""
        assert isinstance(self.cache, BlockCache)
        self.cache.final, self.spent.reused = count, self.spent.reused + count
        self._forward = None

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
        costs = forward.cost, forward.exact_cost
        refresh = costs[0] == costs[1]
        if self.needs.divergence:
            prediction = with_divergence(before, prediction)
        proposed = self._propose(prediction, forward)
        step = self._decide(prediction, forward, proposed)
        commit, remask = proposed.positions, proposed.remask
        if step.commit is not None:
            commit, remask = step.commit, no_positions()
        again = commit[before.cells[commit] != self.special.mask]
        check_rewritten(before, again, self.rule, self._open_block(before))
        self.spent.positions_evaluated += costs[0]
        self.spent.positions_exact += costs[1]
        self.spent.refreshes += refresh
        chosen = prediction.at(commit)
        unsettled = proposed.unsettled and step.commit is None
        held = self._open_block(before) if unsettled else None
        if not forward.only_keeps:
            self.canvas = before.commit(commit, chosen.token, chosen.confidence, held, chosen.drawn)
        open_ = before.open_masks(getattr(self.params, "block_length", None))
        self._check_progress(forward, held is not None, len(open_) == 0)
        if self.params.logprobs:
            keep_alternatives(self.canvas, chosen, self.params.logprobs)
        self.spent.committed += int(np.isin(commit, before.masked).sum())
        edits, moved = self._edit(step, remask)
        if self.spent.first_token is None and len(self.final.returned):
            self.spent.first_token = time.perf_counter()
        if self.cache is not None:
            if forward.computed is None:
                self.cache.refreshed(before)
            self.cache.committed(before, prediction, np.union1d(commit, remask))
            if moved is not None:
                self.cache.moved(moved, self.canvas)
        told = bool(self.params.trace) or self.handle.detail is Detail.STEPS
        record = record_of(
            before,
            *(prediction, step, commit, edits, moved, self.canvas, forward.sees_all),
            *costs,
            foretells=told,
            open_positions=self.params.trace == "positions",
        )
        if self.params.trace and not forward.only_keeps:
            self.trace.append(record)
        self._forward = None
        if self.finish_reason is None:
            self.plan()
        return record

    def _propose(self, prediction: Prediction, forward: Forward) -> Commit:
        """What the commit rule would write and take back."""
        canvas = self.canvas
        if canvas.opens or forward.only_keeps:
            return Commit(prediction.positions)
        size: int | None = getattr(self.params, "block_length", None)
        part: int | None = getattr(self.params, "sub_block_length", None)
        first, end = canvas.open_block(size, part)
        inside = prediction.positions[
            (prediction.positions >= first) & (prediction.positions < end)
        ]
        open_ = canvas.cells[inside] == self.special.mask
        if self.rule.needs.whole_canvas:
            open_ |= ~canvas.given[inside]
        candidates = prediction.at(inside[open_])
        if not len(candidates.positions):
            return Commit(no_positions())
        own = prediction.probes[forward.of_policy :]
        self.asking = f"commit rule {self.rule.name}"
        answer = self.rule(self.canvas, replace(candidates, probes=own))
        commit = answer if isinstance(answer, Commit) else Commit(answer)
        check_rewritten(canvas, commit.remask, self.rule, self._open_block(canvas))
        if not np.isin(commit.positions, candidates.positions).all():
            raise EditError(f"commit rule {self.rule.name} may commit candidates only")
        self.asking = f"policy {self.params.policy}"
        return commit

    def _decide(self, prediction: Prediction, forward: Forward, proposed: Commit) -> Step:
        """How the length changes: the policy's answer, where it is asked."""
        if forward.only_keeps:
            return Step(commit=no_positions(), finished=False)
        if self.closing:
            return Step()
        if forward.sees_all:
            own = replace(prediction, probes=prediction.probes[: forward.of_policy])
            step = self.policy.step(self.canvas, own, proposed.positions)
        else:
            step = self._in_window(prediction, proposed.positions)
        if not proposed.unsettled or step.commit is not None:
            return step
        # The block stays open, and in a block diffusion model the next one has to wait for it.
        edits = step.edits if self.canvas.blocks is None else ()
        return replace(step, edits=edits, finished=False)

    def _in_window(self, prediction: Prediction, commit: Positions) -> Step:
        """A step that sees only a window: the length stays, and the commit rule alone is asked.

        A row whose policy changes the length must not fill its canvas here unless the text ends:
        the canvas may have been too short, which only a forward over all of it can tell. Where
        nothing is committed, the next forward is a refresh.
        """
        assert self.cache is not None
        canvas = self.canvas
        keeps_length = len(canvas.suffix) > 0 or not self.policy.edits
        ends = keeps_length or will_end(canvas, prediction, commit)
        if len(commit) == len(canvas.masked) and not ends:
            commit = no_positions()
        self.cache.stale = self.cache.stale or not len(commit)
        return Step() if len(commit) else Step(commit=no_positions())

    def _check_progress(self, forward: Forward, held: bool, full: bool) -> None:
        """End a row whose cache or rule does not get on. `full`: its open block had no MASK.

        A forward that only keeps is no step of denoising, so that later draws are the same as
        without it; two of them in a row are one too many.
        """
        if forward.only_keeps and self.idle:
            assert self.cache is not None
            raise EditError(f"cache {self.cache.name} never has the open block computed")
        self.idle = forward.only_keeps
        self.spent.stored += forward.only_keeps
        self.post_steps += held
        self.held_since = self.held_since + 1 if held and full else 0
        if self.held_since > MOST_POST_STEPS:
            raise EditError(f"commit rule {self.rule.name} does not come to rest")

    def _edit(self, step: Step, remask: Positions) -> tuple[tuple[Edit, ...], np.ndarray | None]:
        """Take back what the rule takes back; unless the text is complete, edit; perhaps end."""
        taken: tuple[Edit, ...] = ()
        if len(remask):
            taken = (Overwrite(remask, np.full(len(remask), self.special.mask)),)
        stays = self.canvas.hidden(remask) if len(remask) else self.canvas
        if self.params.early_stop and self._final(stays).is_complete:
            moved = self._apply(taken, ()) if taken else None
            self._end()
            return (), moved
        edits = step.edits
        if self.form is not None:
            longest = self.canvas.whole_blocks(self.params.max_new_tokens)
            edits = self.form.kept(stays, edits, longest)
            self.form = self.form.after(step.edits, edits)
        moved = self._apply(taken, edits) if taken or edits else None
        if self._has_ended(step):
            self._end()
        return edits, moved

    def _apply(self, taken: tuple[Edit, ...], edits: tuple[Edit, ...]) -> np.ndarray:
        """Edit the canvas, if the policy may; returns for each new cell the old position."""
        longest = self.canvas.whole_blocks(self.params.max_new_tokens)
        if edits:
            check_edits(self.canvas, edits, self.policy, longest)
        edited = self.canvas.edit((*taken, *edits), longest)
        change = edited.canvas.length - self.canvas.length
        self.spent.expansions += change > 0
        self.spent.contractions += change < 0
        self.canvas = edited.canvas
        return edited.moved

    def _has_ended(self, step: Step) -> bool:
        """Whether the policy says so; a row whose policy says nothing ends with its last MASK."""
        canvas = self.canvas
        steps = canvas.step - self.post_steps
        more = canvas.whole_blocks(self.params.max_new_tokens) - self.params.max_new_tokens
        if steps > max(1, canvas.gap_count) * self.params.most_steps + more:
            raise EditError(f"policy {self.params.policy} does not come to an end")
        full = not len(canvas.masked)
        if self.form is not None and step.finished and not full:
            self.closing = True  # half a text is of no form: the rule alone goes on
            return False
        return full if step.finished is None else step.finished

    def _end(self) -> None:
        """End the row, and say whether its text is complete. Before a suffix, and where the policy
        takes ends away, it is complete when no MASK is left; else when it has an end."""
        canvas = self.canvas
        full = not len(canvas.masked)
        reads_ends = isinstance(self.policy, Infills) and self.policy.reads_ends
        complete = (full and (len(canvas.suffix) > 0 or reads_ends)) or bool(canvas.ends.any())
        complete = complete or (self.form is not None and self.form.accepts(canvas))
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
        if self.rule.keeps is not Keeps.BLOCKS or (not len(canvas.masked) and canvas.held is None):
            return canvas
        behind = np.arange(self._open_block(canvas), canvas.length)
        return canvas.hidden(behind[~canvas.given[behind]])

    def _open_block(self, canvas: Canvas) -> int:
        """The first cell of the block that is being written."""
        return canvas.open_block(getattr(self.params, "block_length", None))[0]

    def logprobs(self) -> list[TokenLogprob] | None:
        """The log-probabilities of the final text, if they are asked for."""
        if self.params.logprobs is None:
            return None
        return logprobs_of(self.final)

    def usage(self) -> Usage:
        return self.spent.usage(self.canvas, self.handle.submitted)
