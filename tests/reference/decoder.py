"""A naive decoder: every rule of the method as plainly as it can be written.

It is the oracle of the engine's tests and the baseline of the benchmark, so it shares no code with
the package and saves nothing: a left-padded batch with attention masks and position ids, logits of
all positions, a softmax over the whole vocabulary, Python loops over positions, and a static batch
in which a finished row keeps its place until the last one is done.

Each rule is a generator over one row: it yields when it wants a forward, is sent this row's
predictions for the whole canvas, and edits the canvas, a plain list of ids, in place.
"""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from statistics import mean
from typing import Any

import torch

#: (input_ids, attention_mask, position_ids), each (B, T) -> logits (B, T, V)
Logits = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

EOS_WINDOW = 32  # positions the EOS confidence looks at
STAGE_ONE_EOS = 16
INSERT_BELOW = 0.1


@dataclass(frozen=True)
class Rule:
    """How a row is decoded: parameters by their names in docs/method.md."""

    policy: str
    low: float  # ρ_low, or where DAEDAL's stage 1 ends
    high: float  # ρ_high, or where DAEDAL's insertions end
    signal: str = "density"
    initial_length: int = 64
    max_new_tokens: int = 2048
    early_stop: bool = False
    # How the length follows the signal.
    expansion: str = "exponential"
    expansion_base: int = 8
    expansion_interval: float = 0.1
    expansion_cap: int = 8
    horizon: int = 64
    spare_content: bool = False
    # Commit rules.
    commit: str = "threshold"
    block_length: int | None = 32
    order: str = "confidence"  # DreamOn's, too
    defer_eos: bool = False
    threshold: float = 0.9
    tie: float = 0.0
    steps: int | None = None  # quota's; DreamOn's most forwards
    spread: str = "first"
    sub_block_length: int | None = None
    steps_per_block: int | None = None
    factor: float = 1.0
    gamma: float = 0.1
    stability: float = 0.01
    stable_steps: int = 2
    draft: float = 0.6
    verify: float = 0.9
    # The window cache.
    cache_window: int = 32  # MASKs, without blocks
    cache_commits: int = 48
    cache_steps: int = 24
    cache_unsure: float = 0.0
    # Scout.
    look: int = 512
    ahead: int = 0
    margin: int = 8
    trust: float = 0.9
    # Quantile.
    risk: float = 0.1
    reading: str = "cdf"
    room: float = 0.25
    # DreamOn.
    expansions: int = 0
    expand: int = -1  # the id of EXPAND
    # CAL.
    evidence: str = "confidence"
    calibrated: bool = True
    behind: int = 16
    patience: int = 4
    stride: int = 1


@dataclass(frozen=True)
class Ids:
    """The special ids. `ends` are all that end the returned text, EOS among them."""

    mask: int
    eos: int
    ends: tuple[int, ...]


@dataclass(frozen=True)
class Guess:
    """What the model says of one canvas position, MASK or committed."""

    token: int  # the most probable one that is not MASK
    confidence: float
    eos: float  # P(EOS)
    entropy: float = 0.0
    margin: float = 0.0  # best less second best
    standing: float = 0.0  # the probability of the token that stands there
    shares: tuple[float, ...] = ()  # the whole distribution


#: By canvas position: all of them, or with a cache those that were computed.
Guesses = Sequence[Guess] | dict[int, Guess]


@dataclass(frozen=True)
class Wish:
    """What a rule wants of its next forward beyond an ordinary one."""

    forbid: tuple[int, ...] = ()  # tokens that the model is to have no more
    hide: int = 0  # tokens at the beginning of the suffix that are shown as MASK
    more: bool = False  # entropy, margin and what stands there
    everything: bool = False  # with a cache: no window
    aside: list[int] = field(default_factory=list)  # another canvas that is predicted as well


class Cells(list[int]):
    """A canvas: a list of ids, and for each of them a dictionary of what is remembered of it.

    Both are always edited alike. `aside` is what the model said of the canvas that was predicted
    beside this one, `hidden` what it said of the open block when that was hidden.
    """

    def __init__(self, ids: Sequence[int]) -> None:
        super().__init__(ids)
        self.memory: list[dict[str, Any]] = [{} for _ in ids]
        self.step = 0
        self.complete = False  # the text, by what was committed
        self.aside: list[Guess] = []
        self.hidden: dict[int, float] = {}
        self.taken: set[int] = set()  # what the commit rule took back in this step

    def __iadd__(self, more: Any) -> "Cells":  # type: ignore[misc, override]
        self.memory += [{} for _ in more]
        super().__iadd__(more)
        return self

    def __delitem__(self, at: Any) -> None:
        del self.memory[at]
        super().__delitem__(at)

    def __setitem__(self, at: Any, value: Any) -> None:
        if isinstance(at, slice):
            self.memory[at] = [{} for _ in value]
        super().__setitem__(at, value)


@dataclass
class Result:
    canvas: Cells
    nfe: int = 0
    positions_evaluated: int = 0  # this row's own: prompt and canvas, no padding
    densities: list[float | None] = field(default_factory=list)  # one per forward


Loop = Generator[Wish | None, list[Guess], None]


def decode(
    logits: Logits,
    prompts: Sequence[list[int]],
    rules: Sequence[Rule],
    ids: Ids,
    batch_size: int = 1,
    suffixes: Sequence[list[int]] | None = None,
    canvases: Sequence[list[int]] | None = None,
    timed: bool = False,
) -> list[Result]:
    """All prompts, `batch_size` at a time, each by its own rule.

    `suffixes`: what stands behind each canvas; `canvases`: what each starts from, if not MASKs.
    `timed`: read every number from its tensor by itself, as the plainest program would and as the
    benchmark has always measured it. That is slow, and the numbers are the same.
    """
    behind = suffixes or [[] for _ in prompts]
    starts = canvases or [[ids.mask] * rule.initial_length for rule in rules]
    results: list[Result] = []
    for start in range(0, len(prompts), batch_size):
        part = slice(start, start + batch_size)
        rows = [
            Row(*each, ids)
            for each in zip(prompts[part], rules[part], behind[part], starts[part], strict=True)
        ]
        while any(row.wish for row in rows):
            guesses = _predict(logits, rows, [row.result.canvas for row in rows], timed)
            for row, own in zip(rows, guesses, strict=True):
                if row.wish is not None:
                    row.advance(own, lambda other, row=row: _aside(logits, row, other, timed))
        results += [row.result for row in rows]
    return results


class Row:
    """One request, and what its rule wants of its next forward; None: it is done."""

    def __init__(
        self, prompt: list[int], rule: Rule, suffix: list[int], start: list[int], ids: Ids
    ) -> None:
        self.prompt, self.rule, self.suffix, self.ids = prompt, rule, suffix, ids
        self.result = Result(Cells(start))
        self.loop = LOOPS[rule.policy](self.result.canvas, rule, ids)
        self.wish = wish_of(self.loop, rule)
        # Before text that follows no end is chosen, unless EOS means something else to the rule.
        self.endless = bool(suffix) and rule.policy != "dreamon"

    def advance(self, guesses: list[Guess], predict: Callable[[list[int]], list[Guess]]) -> None:
        """A step. `predict` is asked for what the rule wants to know beside its own canvas."""
        result, rule, ids, canvas = self.result, self.rule, self.ids, self.result.canvas
        around = len(self.prompt) + len(self.suffix)
        result.nfe += 1
        result.positions_evaluated += around + len(canvas)
        for other in look_aside(canvas, self.wish or Wish(), rule, ids, predict):
            result.positions_evaluated += around + len(other)
        result.densities.append(density(canvas, guesses, ids))
        remember(canvas, guesses, rule, ids)
        self.wish = wish_of(self.loop, rule, guesses)
        canvas.step += 1
        if rule.early_stop and not self.suffix and canvas.complete:
            self.wish = None


def wish_of(loop: Loop, rule: Rule, guesses: list[Guess] | None = None) -> Wish | None:
    """What the rule wants of its next forward; None: it is done. EXPAND is DreamOn's alone."""
    try:
        wish = loop.send(guesses) or Wish()  # type: ignore[arg-type]
    except StopIteration:
        return None
    alien = rule.expand >= 0 and rule.policy != "dreamon"
    wish = replace(wish, forbid=(rule.expand,)) if alien else wish
    more = rule.commit in ("entropy-bound", "klass") or rule.order != "confidence"
    return replace(wish, more=True) if more else wish


def look_aside(
    canvas: Cells,
    wish: Wish,
    rule: Rule,
    ids: Ids,
    predict: Callable[[list[int]], list[Guess]],
) -> list[list[int]]:
    """Predict what is wanted beside the canvas itself; returns which canvases that were."""
    looked: list[list[int]] = []
    canvas.aside, canvas.hidden = [], {}
    if wish.aside:
        looked.append(list(wish.aside))
        canvas.aside = predict(looked[-1])
    if rule.commit == "wino" and ids.mask in canvas:
        written = [at for at in open_block(canvas, rule, ids) if canvas.memory[at].get("committed")]
        if written:
            looked.append([ids.mask if at in written else canvas[at] for at in range(len(canvas))])
            shares = predict(looked[-1])
            canvas.hidden = {at: shares[at].shares[canvas[at]] for at in written}
    return looked


def _aside(logits: Logits, row: Row, canvas: list[int], timed: bool) -> list[Guess]:
    """What the model says of another canvas between the same prompt and suffix."""
    return _predict(logits, [row], [canvas], timed, more=True)[0]


@torch.inference_mode()
def _predict(
    logits: Logits,
    rows: Sequence[Row],
    canvases: Sequence[list[int]],
    timed: bool,
    more: bool = False,
) -> list[list[Guess]]:
    """One forward of the padded batch: a guess for every position behind a row's prompt."""
    tails = [[*canvas, *row.suffix] for canvas, row in zip(canvases, rows, strict=True)]
    wishes = [replace(row.wish or Wish(), more=more or (row.wish or Wish()).more) for row in rows]
    shown = [
        [
            *row.prompt,
            *canvas,
            *[row.ids.mask for _ in row.suffix[: wish.hide]],
            *row.suffix[wish.hide :],
        ]
        for canvas, row, wish in zip(canvases, rows, wishes, strict=True)
    ]
    width, eos = max(len(row) for row in shown), rows[0].ids.eos
    padded = torch.tensor([[eos] * (width - len(row)) + row for row in shown])
    real = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in shown])
    positions = (real.cumsum(1) - 1).clamp(min=0)
    scores = logits(padded, real, positions).float()
    return [
        guesses_of(own, tail, row.ids, wish, row.endless, timed)
        for own, tail, row, wish in zip(scores, tails, rows, wishes, strict=True)
    ]


def guesses_of(
    scores: torch.Tensor,
    standing: Sequence[int],
    ids: Ids,
    wish: Wish,
    endless: bool = False,
    timed: bool = False,
) -> list[Guess]:
    """From the logits of a row, what the model says of its last positions: where `standing` is."""
    scores = scores.clone()
    scores[:, list(wish.forbid)] = -torch.inf
    probabilities = scores.softmax(-1)
    scores[:, [ids.mask, *(ids.ends if endless else ())]] = -torch.inf
    tokens = scores.argmax(-1)
    token, share = (tokens, probabilities) if timed else (tokens.numpy(), probabilities.numpy())
    return [
        Guess(
            token=int(token[at]),
            confidence=float(share[at, token[at]]),
            eos=float(share[at, ids.eos]),
            **(more_of(probabilities[at], scores[at], own) if wish.more else {}),
        )
        for at, own in enumerate(standing, len(scores) - len(standing))
    ]


def more_of(probabilities: torch.Tensor, scores: torch.Tensor, standing: int) -> dict[str, Any]:
    """What only some rules read."""
    best, second = probabilities[scores.topk(2).indices].tolist()
    return {
        "entropy": -sum(p * math.log(p) for p in probabilities.tolist() if p > 0),
        "margin": best - second,
        "standing": float(probabilities[standing]),
        "shares": tuple(probabilities.tolist()),
    }


def text_is_complete(canvas: Cells, rule: Rule, ids: Ids) -> bool:
    """No MASK is left before the first committed end. WINO may still take back the open block."""
    final = list(canvas)
    if rule.commit == "wino" and ids.mask in canvas:
        final = final[: open_block(canvas, rule, ids)[0]]
    for token in final:
        if token == ids.mask:
            return False
        if token in ids.ends:
            return True
    return False


def returned_tokens(canvas: list[int], ids: Ids) -> list[int]:
    """What a caller gets: everything before the first end."""
    ends = [at for at, token in enumerate(canvas) if token in ids.ends]
    return canvas[: min(ends, default=len(canvas))]


# -- the rules ------------------------------------------------------------------------------------


def fixed(canvas: Cells, rule: Rule, ids: Ids) -> Loop:
    """Fixed length: only the commit rule is at work."""
    while ids.mask in canvas:
        guesses = yield
        commit(canvas, guesses, rule, ids)


def rho_eos(canvas: Cells, rule: Rule, ids: Ids) -> Loop:
    """Single stage, both directions: commit, then pull the signal back into its region."""
    n, decided = 0, -1
    while ids.mask in canvas:
        guesses = yield
        rho = signal(canvas, guesses, rule, ids)
        commit(canvas, guesses, rule, ids)
        if 0 < len(canvas) < rule.max_new_tokens and n < rule.horizon:
            if rho < exact(rule.low):
                # With a cache one decision stands for all forwards since the last.
                wanted = (canvas.step - decided) * expansion(rho, rule)
                grow(canvas, min(wanted, rule.expansion_base * rule.expansion_cap), rule, ids)
            elif rho > exact(rule.high):
                for _ in range(min(expansion(rho, rule), len(canvas))):
                    wanted = rule.spare_content and guesses[len(canvas) - 1].token != ids.eos
                    if canvas[-1] != ids.mask or wanted:
                        break
                    del canvas[-1]
        n, decided = n + 1, canvas.step


def daedal(canvas: Cells, rule: Rule, ids: Ids) -> Loop:
    """Two stages, expansion only."""
    longest = rule.max_new_tokens
    guesses = yield Wish(everything=True)
    while signal(canvas, guesses, rule, ids) < exact(rule.low) and len(canvas) < longest:
        grow(canvas, rule.expansion_base, rule, ids)
        guesses = yield Wish(everything=True)
    canvas += [ids.eos] * min(STAGE_ONE_EOS, longest - len(canvas))

    while ids.mask in canvas:
        guesses = yield
        rho = signal(canvas, guesses, rule, ids)
        block = candidates(canvas, rule, ids)
        commit(canvas, guesses, rule, ids)
        unsure = [
            at for at in block if canvas[at] == ids.mask and guesses[at].confidence < INSERT_BELOW
        ]
        if rho < exact(rule.high) and len(canvas) < longest and unsure:
            at = min(unsure, key=lambda at: guesses[at].confidence)
            canvas[at + 1 : at + 1] = [ids.mask] * min(rule.expansion_base - 1, longest)
            del canvas[longest:]


def released(canvas: Cells, rule: Rule, ids: Ids) -> Loop:
    """What the published code does at batch size 1, its faults included (docs/method.md §8)."""
    start, frozen = 0, False
    while start < len(canvas) and canvas.step < rule.max_new_tokens:
        guesses = yield
        number = Fraction(eos_confidence(guesses, ids))
        end = min(start + (rule.block_length or len(canvas)), len(canvas))
        window = [at for at in masks(canvas, ids) if start <= at < end]
        written, _ = chosen(canvas, window, guesses, rule, ids)
        write(canvas, written, [], guesses, rule, ids)
        frozen = frozen or len(canvas) >= rule.max_new_tokens
        if not frozen and canvas.step < rule.horizon:
            if number < exact(rule.low):
                grow(canvas, expansion(number, rule), rule, ids)
            elif number > exact(rule.high):
                del canvas[max(0, len(canvas) - expansion(number, rule)) :]
        start = min(end if len(written) == len(window) else start, len(canvas))


def frontier(canvas: Cells, rule: Rule, ids: Ids) -> Loop:
    """64 MASKs ahead while no end is in sight; 16 behind the end once it is."""
    while ids.mask in canvas:
        guesses = yield
        masked, shown = masks(canvas, ids), foretold(canvas, guesses, ids)
        end = end_of(shown, ids)
        behind = len([at for at in masked if at >= end])
        commit(canvas, guesses, rule, ids)
        if end == len(shown) and len(masked) < 64:
            grow(canvas, 64 - len(masked) + 32, rule, ids)
        elif end < len(shown):
            ending = [at for at in masks(canvas, ids) if at >= end]
            count = min(behind - 16, len(ending))
            if 8 <= count <= trailing_masks(canvas, ids):
                del canvas[len(canvas) - count :]


def landing(canvas: Cells, rule: Rule, ids: Ids) -> Loop:
    """The end of the text as a change point of P(EOS) over the MASKs."""
    while ids.mask in canvas:
        guesses = yield
        masked, m = masks(canvas, ids), len(masks(canvas, ids))
        ended = has_end(canvas, ids)
        likely = [min(max(guesses[at].eos, 0.02), 0.98) for at in masked]
        scores = [
            sum(math.log(1 - e) for e in likely[:b]) + sum(math.log(e) for e in likely[b:])
            for b in range(m + 1)
        ]
        best = max(range(m + 1), key=lambda b: scores[b])
        fits = best <= m - 8 and scores[best] > scores[m] + 2 * math.log(m + 1)
        written = len(canvas) - m
        commit(canvas, guesses, rule, ids)
        slack = 0.5 - 0.4 * written / max(1, written + best)
        spare = min(m - best - max(16, math.ceil(slack * best)), trailing_masks(canvas, ids))
        if not fits and not ended:
            grow(canvas, max(64, len(canvas) // 2), rule, ids)
        elif fits and spare > 16:
            del canvas[len(canvas) - spare :]


def scout(canvas: Cells, rule: Rule, ids: Ids) -> Loop:
    """What a short canvas foretells is kept; the length is read on a long one. If that would begin
    with another text, there is room for all of it from then on, and it stays; else only for what
    comes next. An end that comes much sooner is doubted once, and believed only if a long canvas
    shows it too."""
    longest = max(rule.look, rule.initial_length)
    block = rule.block_length or 1
    next_ = -(-32 // block)  # blocks
    del canvas[:]
    canvas += [ids.mask] * min(-(-longest // 2), rule.max_new_tokens)
    ends_seen: list[int] = []
    goal, expected, doubted, wide, compared = len(canvas), -1, None, False, False
    while ids.mask in canvas:
        short = [ids.mask] * (next_ * block)
        look = expected < 0 and rule.trust > 0 and not compared and len(short) < len(canvas)
        guesses = yield Wish(everything=goal > 0, aside=short if look else [])
        shown = foretold(canvas, guesses, ids)
        end = end_of(shown, ids)
        in_sight, ended = end < len(canvas), has_end(canvas, ids)
        if expected < 0:
            if look:
                pairs = [
                    (old.confidence, old.token == shown[at]) for at, old in enumerate(canvas.aside)
                ]
                held = sum(sure for sure, same in pairs if same) / sum(sure for sure, _ in pairs)
                compared, wide = True, held < rule.trust
            unclear = not in_sight or 2 * end > len(canvas)
            if unclear and rule.trust > 0 and (wide or not compared):
                goal = longest
        elif doubted is None and in_sight and not ended and end <= expected - 16:
            doubted, goal = (end, expected + rule.margin) if len(canvas) < expected else (None, 0)
        if len(canvas) < min(goal, rule.max_new_tokens):
            grow(canvas, goal - len(canvas), rule, ids)
            continue
        if goal > 0 and doubted is not None and (not in_sight or end >= doubted + 16):
            wide = True
        goal = 0
        if in_sight:
            ends_seen.append(end)
            expected = max(ends_seen) if wide else end
        else:
            expected = max(expected, len(canvas))
        commit(canvas, guesses, rule, ids)
        first = canvas.index(ids.mask) if ids.mask in canvas else len(canvas)
        most = (first // block + next_) * block + rule.ahead
        if wide:
            most = max(most, expected + max(rule.margin, 32))
        if not in_sight and len(canvas) < most:
            if not has_end(canvas, ids):
                grow(canvas, most - len(canvas), rule, ids)
            continue
        if in_sight and wide:
            most = expected + max(rule.margin, 32, expected // 2)
        elif in_sight:
            most = min(most, end + rule.margin)
        count = min(len(canvas) - most, trailing_masks(canvas, ids))
        if count >= 8:
            del canvas[len(canvas) - count :]


def quantile(canvas: Cells, rule: Rule, ids: Ids) -> Loop:
    """The least canvas that suffices with probability 1 - risk, and some room."""
    longest = max(rule.look, rule.initial_length)
    del canvas[:]
    canvas += [ids.mask] * min(-(-longest // 2), rule.max_new_tokens)
    looked = False
    while ids.mask in canvas:
        guesses = yield Wish(everything=not looked)
        enough = sufficient(canvas, guesses, rule, ids)
        unclear = enough is None or 2 * enough > len(canvas)
        if not looked and unclear and len(canvas) < min(longest, rule.max_new_tokens):
            grow(canvas, longest - len(canvas), rule, ids)
            continue
        looked = True
        commit(canvas, guesses, rule, ids)
        if enough is None:
            grow(canvas, max(16, len(canvas) // 2), rule, ids)
            continue
        spare = len(canvas) - enough - max(16, math.floor(rule.room * enough))
        count = min(spare, trailing_masks(canvas, ids))
        if count >= 8:
            del canvas[len(canvas) - count :]


def sufficient(canvas: list[int], guesses: list[Guess], rule: Rule, ids: Ids) -> int | None:
    """The least length that the text has at most with probability 1 - risk."""
    sure = [guess.eos for guess in guesses]
    ended = False
    for at, token in enumerate(canvas):
        ended = ended or token in ids.ends
        if ended:
            sure[at] = 1.0
        elif token != ids.mask:
            sure[: at + 1] = [0.0] * (at + 1)
    if rule.reading == "hazard":
        goes_on = 1.0
        for at, each in enumerate(sure):
            goes_on *= 1 - each
            sure[at] = 1 - goes_on
    elif rule.reading == "last":
        for at in range(len(sure) - 2, -1, -1):
            sure[at] = min(sure[at], sure[at + 1])
    else:
        pools: list[list[float]] = []  # of neighbours that fall
        for each in sure:
            pools.append([each])
            while len(pools) > 1 and mean(pools[-2]) > mean(pools[-1]):
                last = pools.pop()
                pools[-1] += last
        sure = [mean(pool) for pool in pools for _ in pool]
    return next((at for at, each in enumerate(sure) if each >= 1 - rule.risk), None)


def blocks(canvas: Cells, rule: Rule, ids: Ids) -> Loop:
    """One block after the other, until one holds an end."""
    while ids.mask in canvas:
        guesses = yield
        commit(canvas, guesses, rule, ids)
        if ids.mask not in canvas and not has_end(canvas, ids):
            grow(canvas, rule.initial_length, rule, ids)


def dreamon(canvas: Cells, rule: Rule, ids: Ids) -> Loop:
    """One MASK a step: a token, or EXPAND (two MASKs), or EOS (it goes, and the MASKs behind)."""
    budget = rule.expansions
    assert rule.steps is not None
    for _ in range(rule.steps):
        masked = masks(canvas, ids)
        if not masked:
            return
        full = len(canvas) >= rule.max_new_tokens or budget == 0
        guesses = yield Wish(forbid=(rule.expand,) if full else (), more=True)
        at = max(masked, key=lambda at: surety(guesses[at], rule))
        token = guesses[at].token
        if token == rule.expand:
            canvas[at : at + 1] = [ids.mask] * 2
            budget -= 1
        elif token == ids.eos:
            canvas[at:] = [token for token in canvas[at:] if token != ids.mask]
        else:
            canvas[at] = token


def cal(canvas: Cells, rule: Rule, ids: Ids) -> Loop:
    """Lengths are tried upwards, then downwards, from where the canvas starts; then the rule."""
    start = len(canvas)
    hide = rule.behind if rule.evidence == "suffix" else 0
    scores: dict[int, float] = {}
    best = start
    for direction in (1, -1):
        length, worse = (start if direction > 0 else start - rule.stride), 0
        while 1 <= length <= rule.max_new_tokens and worse < rule.patience:
            canvas[:] = [ids.mask] * length
            guesses = yield Wish(hide=hide, more=True)
            if rule.evidence == "suffix":
                seen = [guess.standing for guess in guesses[length : length + hide]]
                scores[length] = sum(math.log(max(p, 1e-9)) for p in seen) / max(1, len(seen))
            else:
                bias = math.exp(-1.77 * length) + 0.56 * math.exp(-0.06 * length) + 0.24
                mean = sum(guess.confidence for guess in guesses[:length]) / length
                scores[length] = mean / bias if rule.calibrated else mean
            better = length == start or scores[length] > scores[best]
            best, worse = (length, 0) if better else (best, worse + 1)
            length += direction * rule.stride
    canvas[:] = [ids.mask] * best
    while ids.mask in canvas:
        guesses = yield
        commit(canvas, guesses, rule, ids)


LOOPS: dict[str, Callable[[Cells, Rule, Ids], Loop]] = {
    "fixed": fixed,
    "rho-eos": rho_eos,
    "daedal": daedal,
    "released": released,
    "frontier": frontier,
    "landing": landing,
    "scout": scout,
    "quantile": quantile,
    "blocks": blocks,
    "dreamon": dreamon,
    "cal": cal,
}


# -- their parts ----------------------------------------------------------------------------------


def masks(canvas: list[int], ids: Ids) -> list[int]:
    return [at for at, token in enumerate(canvas) if token == ids.mask]


def trailing_masks(canvas: Cells, ids: Ids) -> int:
    """How many MASKs stand at the end. A token that is taken back in this step is no MASK yet."""
    others = [at for at, token in enumerate(canvas) if token != ids.mask or at in canvas.taken]
    return len(canvas) - 1 - max(others, default=-1)


def has_end(canvas: list[int], ids: Ids) -> bool:
    return any(token in ids.ends for token in canvas)


def foretold(canvas: list[int], guesses: Guesses, ids: Ids) -> list[int]:
    """The canvas with every MASK as the model would write it."""
    return [guesses[at].token if own == ids.mask else own for at, own in enumerate(canvas)]


def end_of(shown: list[int], ids: Ids) -> int:
    """Where the EOS at its end begin."""
    return 1 + max((at for at, token in enumerate(shown) if token != ids.eos), default=-1)


def grow(canvas: Cells, count: int, rule: Rule, ids: Ids) -> None:
    """Append so many MASKs, up to the longest canvas there may be."""
    canvas += [ids.mask] * min(count, rule.max_new_tokens - len(canvas))


def open_block(canvas: list[int], rule: Rule, ids: Ids) -> range:
    """The first block that still holds a MASK; without blocks the whole canvas."""
    size = rule.block_length or len(canvas)
    first = canvas.index(ids.mask) // size * size
    return range(first, min(first + size, len(canvas)))


def candidates(canvas: list[int], rule: Rule, ids: Ids) -> list[int]:
    """The MASKs that may be committed now: those of the first block that still holds one, or of the
    first such part of it."""
    now = [at for at in masks(canvas, ids) if at in open_block(canvas, rule, ids)]
    if rule.sub_block_length is not None and now and rule.block_length is not None:
        part = [at % rule.block_length // rule.sub_block_length for at in now]
        now = [at for at, own in zip(now, part, strict=True) if own == part[0]]
    return now


def commit(canvas: Cells, guesses: Guesses, rule: Rule, ids: Ids) -> None:
    """What the commit rule writes, and what it takes back."""
    now = candidates(canvas, rule, ids)
    write(canvas, *chosen(canvas, now, guesses, rule, ids), guesses, rule, ids)


def write(
    canvas: Cells, written: list[int], taken: list[int], guesses: Guesses, rule: Rule, ids: Ids
) -> None:
    for at in written:
        canvas[at] = guesses[at].token
        canvas.memory[at]["committed"] = canvas.step + 1
    canvas.taken = set(taken)
    for at in taken:
        canvas[at] = ids.mask
        for name in ("committed", "shares", "moves"):
            canvas.memory[at].pop(name, None)
    canvas.complete = text_is_complete(canvas, rule, ids)


def surety(guess: Guess, rule: Rule) -> float:
    """What candidates are ranked by."""
    by = {"confidence": guess.confidence, "margin": guess.margin, "entropy": -guess.entropy}
    return by[rule.order]


def chosen(
    canvas: Cells, now: list[int], guesses: Guesses, rule: Rule, ids: Ids
) -> tuple[list[int], list[int]]:
    """The candidates that are committed, and the committed tokens that become MASK again."""
    ending = [at for at in now if guesses[at].token in ids.ends]
    if rule.defer_eos and rule.commit != "quota" and len(ending) < len(now):
        now = [at for at in now if at not in ending]
    if not now:
        return [], []
    order = sorted(now, key=lambda at: -surety(guesses[at], rule))
    if rule.commit in ("threshold", "released"):
        sure = [at for at in now if guesses[at].confidence > rule.threshold]
        most = surety(guesses[order[0]], rule)
        return sure or [at for at in now if surety(guesses[at], rule) >= most - rule.tie][:1], []
    if rule.commit == "quota":
        sure = [at for at in now if guesses[at].confidence > rule.threshold]
        share = quota(canvas, rule, ids)
        if rule.defer_eos:
            order.sort(key=lambda at: at in ending)
        return (sure if len(sure) >= share else sorted(order[:share])), []
    if rule.commit == "factor":
        count = 1
        for n in range(1, len(order) + 1):
            least = min(guesses[at].confidence for at in order[:n])
            count = n if (n + 1) * (1 - least) < rule.factor else count
        return sorted(order[:count]), []
    if rule.commit == "entropy-bound":
        count = 1
        for n in range(1, len(order) + 1):
            entropies = [guesses[at].entropy for at in order[:n]]
            if sum(entropies) - max(entropies) > rule.gamma:
                break
            count = n
        return sorted(order[:count]), []
    if rule.commit == "klass":
        recent = {at: canvas.memory[at]["moves"][-rule.stable_steps :] for at in now}
        calm = [
            at
            for at in now
            if len(recent[at]) == rule.stable_steps
            and max(recent[at]) < rule.stability
            and guesses[at].confidence > rule.threshold
        ]
        return calm or order[:1], []
    assert rule.commit == "wino"
    sure = [at for at in now if guesses[at].confidence > rule.draft] or order[:1]
    doubtful = [at for at, share in canvas.hidden.items() if share < rule.verify]
    doubtful.sort(key=lambda at: canvas.hidden[at])
    return sure, doubtful[: max(0, len(sure) - 1)]


def remember(canvas: Cells, guesses: Guesses, rule: Rule, ids: Ids) -> None:
    """For KLASS: how much the distribution at every predicted MASK has changed."""
    if rule.commit != "klass":
        return
    predicted = guesses if isinstance(guesses, dict) else range(len(canvas))
    for at in predicted:
        if canvas[at] != ids.mask:
            continue
        memory, now = canvas.memory[at], guesses[at].shares
        before = memory.get("shares")
        moves = memory.setdefault("moves", [])
        if before is not None:
            pairs = zip(before, now, strict=True)
            moves.append(sum(p * math.log(p / max(q, 1e-12)) for p, q in pairs if p > 1e-12))
        memory["shares"] = now


def quota(canvas: Cells, rule: Rule, ids: Ids) -> int:
    """How many commits are due in this step of the open block."""
    members = open_block(canvas, rule, ids)
    size = rule.block_length or len(canvas)
    steps = len(members)
    if rule.steps_per_block is not None:
        steps = rule.steps_per_block
    elif rule.steps is not None:
        share, rest = divmod(rule.steps, -(-len(canvas) // size))
        steps = share + (members[0] // size < rest)
    steps = max(1, min(steps, len(members)))
    made = {canvas.memory[at].get("committed") for at in members} - {None}  # the steps so far
    step = min(len(made), steps - 1)
    if rule.spread == "even":
        left = sum(canvas[at] == ids.mask for at in members)
        return max(1, round(left / (steps - step)))
    return len(members) // steps + (step < len(members) % steps)  # the remainder comes first


def signal(canvas: list[int], guesses: list[Guess], rule: Rule, ids: Ids) -> Fraction:
    """The number the length follows, exact: a region's border belongs to the region."""
    if rule.signal == "confidence":
        return Fraction(eos_confidence(guesses, ids))
    masked = masks(canvas, ids)
    return Fraction(sum(guesses[at].token == ids.eos for at in masked), len(masked))


def density(canvas: list[int], guesses: list[Guess], ids: Ids) -> float | None:
    """ρ, for the record; None when no MASK is left."""
    votes = [guesses[at].token == ids.eos for at in masks(canvas, ids)]
    return sum(votes) / len(votes) if votes else None


def eos_confidence(guesses: list[Guess], ids: Ids) -> float:
    """Σ P(EOS) over the last 32 positions whose argmax is EOS, over 32."""
    ending = [guess.eos for guess in guesses if guess.token == ids.eos]
    return sum(ending[-EOS_WINDOW:]) / EOS_WINDOW


def expansion(rho: Fraction, rule: Rule) -> int:
    """E(ρ) = base · m(s), s whole intervals away from the region, m capped."""
    distance = max(exact(rule.low) - rho, rho - exact(rule.high))
    s = max(1, math.ceil(distance / exact(rule.expansion_interval)))
    m = {"constant": 1, "linear": s, "exponential": 2 ** (s - 1)}[rule.expansion]
    return rule.expansion_base * min(m, rule.expansion_cap)


def exact(number: float) -> Fraction:
    """The decimal that was written: 0.4 is 4/10, not the nearest binary fraction."""
    return Fraction(str(number))
