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
from typing import Any

import torch

#: (input_ids, attention_mask, position_ids), each (B, T) -> logits (B, T, V)
Logits = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

EOS_WINDOW = 32  # positions the EOS confidence looks at
STAGE_ONE_GROWTH = 8
STAGE_ONE_EOS = 16
INSERTION = 8
INSERT_BELOW = 0.1


@dataclass(frozen=True)
class Rule:
    """How a row is decoded: the letters of the method."""

    policy: str  # fixed, rho-eos, daedal
    low: float  # ρ_low, or where DAEDAL's stage 1 ends
    high: float  # ρ_high, or where DAEDAL's insertions end
    signal: str = "density"
    initial_length: int = 64
    max_length: int = 2048
    threshold: float = 0.9
    steps: int | None = None  # fixed only; None is the τ rule
    block: int | None = 32
    expansion: str = "exponential"
    base: int = 8
    interval: float = 0.1
    cap: int = 8
    horizon: int = 64
    spare_content: bool = False
    tie: float = 0.0
    look: int = 512  # scout's four numbers
    ahead: int = 0
    margin: int = 8
    trust: float = 0.9
    early_stop: bool = False
    commit: str = "threshold"
    commit_order: str = "confidence"
    steps_per_block: int | None = None
    factor: float = 1.0
    gamma: float = 0.1
    stability: float = 0.01
    stable_steps: int = 2
    draft: float = 0.6
    verify: float = 0.9
    order: str = "entropy"  # DreamOn's
    budget: int = 0  # its expansions
    most_steps: int = 128  # and forwards
    expand: int = -1  # its EXPAND
    evidence: str = "confidence"  # CAL's
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
        self.aside: list[Guess] = []
        self.hidden: dict[int, float] = {}

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

    def pop(self, at: Any = -1) -> int:
        self.memory.pop(at)
        return super().pop(at)


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
        results += _decode_batch(
            logits, prompts[part], rules[part], ids, behind[part], starts[part], timed
        )
    return results


def _decode_batch(
    logits: Logits,
    prompts: Sequence[list[int]],
    rules: Sequence[Rule],
    ids: Ids,
    suffixes: Sequence[list[int]],
    starts: Sequence[list[int]],
    timed: bool,
) -> list[Result]:
    results = [Result(Cells(start)) for start in starts]
    loops = [LOOPS[rule.policy](row.canvas, rule, ids) for row, rule in zip(results, rules)]  # noqa: B905
    wishes = [wish_of(loop, rule) for loop, rule in zip(loops, rules, strict=True)]
    # Before text that follows no end is chosen, unless EOS means something else to the rule.
    endless = [
        bool(suffix) and rule.policy != "dreamon"
        for suffix, rule in zip(suffixes, rules, strict=True)
    ]
    while any(wishes):
        canvases = [row.canvas for row in results]
        guesses = _predict(logits, prompts, canvases, ids, suffixes, wishes, endless, timed)
        for index, row in enumerate(results):
            wish = wishes[index]
            if wish is None:
                continue

            def other(canvas: list[int], index: int = index) -> list[Guess]:
                place = slice(index, index + 1)
                return _predict(
                    logits,
                    prompts[place],
                    [canvas],
                    ids,
                    suffixes[place],
                    [replace(wishes[index] or Wish(), more=True)],
                    endless[place],
                    timed,
                )[0]

            row.nfe += 1
            around = len(prompts[index]) + len(suffixes[index])
            row.positions_evaluated += around + len(row.canvas)
            for canvas in look_aside(row.canvas, wish, rules[index], ids, other):
                row.positions_evaluated += around + len(canvas)
            row.densities.append(density(row.canvas, guesses[index], ids))
            remember(row.canvas, guesses[index], rules[index], ids)
            wishes[index] = wish_of(loops[index], rules[index], guesses[index])
            row.canvas.step += 1
            may_stop = rules[index].early_stop and not suffixes[index]
            if may_stop and text_is_complete(row.canvas, ids):
                wishes[index] = None
    return results


def wish_of(loop: Loop, rule: Rule, guesses: list[Guess] | None = None) -> Wish | None:
    """What the rule wants of its next forward; None: it is done. EXPAND is DreamOn's alone."""
    try:
        wish = loop.send(guesses) or Wish()  # type: ignore[arg-type]
    except StopIteration:
        return None
    alien = rule.expand >= 0 and rule.policy != "dreamon"
    wish = replace(wish, forbid=(rule.expand,)) if alien else wish
    more = rule.commit in ("entropy-bound", "klass") or rule.commit_order != "confidence"
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
    if rule.commit == "wino":
        first = candidates(canvas, rule, ids)[0]
        block = rule.block or len(canvas)
        start = first // block * block
        inside = range(start, min(start + block, len(canvas)))
        written = [at for at in inside if canvas.memory[at].get("committed")]
        if written:
            looked.append([ids.mask if at in written else canvas[at] for at in range(len(canvas))])
            shares = predict(looked[-1])
            canvas.hidden = {at: shares[at].shares[canvas[at]] for at in written}
    return looked


@torch.inference_mode()
def _predict(
    logits: Logits,
    prompts: Sequence[list[int]],
    canvases: Sequence[list[int]],
    ids: Ids,
    suffixes: Sequence[list[int]],
    wishes: Sequence[Wish | None],
    endless: Sequence[bool],
    timed: bool,
) -> list[list[Guess]]:
    """One forward of the padded batch: a guess for every position behind a row's prompt."""
    tails = [[*canvas, *suffix] for canvas, suffix in zip(canvases, suffixes, strict=True)]
    shown = [
        [*canvas, *[ids.mask] * (wish or Wish()).hide, *suffix[(wish or Wish()).hide :]]
        for canvas, suffix, wish in zip(canvases, suffixes, wishes, strict=True)
    ]
    rows = [[*prompt, *tail] for prompt, tail in zip(prompts, shown, strict=True)]
    width = max(len(row) for row in rows)
    padded = torch.tensor([[ids.eos] * (width - len(row)) + row for row in rows])
    real = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    positions = (real.cumsum(1) - 1).clamp(min=0)
    scores = logits(padded, real, positions).float()
    for index, wish in enumerate(wishes):
        for token in wish.forbid if wish else ():
            scores[index, :, token] = -torch.inf
    probabilities = scores.softmax(-1)
    scores[:, :, ids.mask] = -torch.inf
    for index in range(len(rows)):
        for token in ids.ends if endless[index] else ():
            scores[index, :, token] = -torch.inf
    tokens = scores.argmax(-1)
    token, share = (tokens, probabilities) if timed else (tokens.numpy(), probabilities.numpy())
    return [
        [
            Guess(
                token=int(token[index, at]),
                confidence=float(share[index, at, token[index, at]]),
                eos=float(share[index, at, ids.eos]),
                **(
                    more_of(probabilities[index, at], tail[at - width], ids)
                    if (wishes[index] or Wish()).more
                    else {}
                ),
            )
            for at in range(width - len(tail), width)
        ]
        for index, tail in enumerate(tails)
    ]


def more_of(probabilities: torch.Tensor, standing: int, ids: Ids) -> dict[str, Any]:
    """What only some rules read."""
    candidates = probabilities.clone()
    candidates[ids.mask] = 0
    best, second = candidates.topk(2).values.tolist()
    return {
        "entropy": -sum(p * math.log(p) for p in probabilities.tolist() if p > 0),
        "margin": best - second,
        "standing": float(probabilities[standing]),
        "shares": tuple(probabilities.tolist()),
    }


def text_is_complete(canvas: list[int], ids: Ids) -> bool:
    """No MASK is left before the first committed end."""
    for token in canvas:
        if token == ids.mask:
            return False
        if token in ids.ends:
            return True
    return False


def returned_tokens(canvas: list[int], ids: Ids) -> list[int]:
    """What a caller gets: everything before the first end."""
    kept = []
    for token in canvas:
        if token in ids.ends:
            break
        kept.append(token)
    return kept


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
        if 0 < len(canvas) < rule.max_length and n < rule.horizon:
            if rho < exact(rule.low):
                room = rule.max_length - len(canvas)
                # With a cache one decision stands for all forwards since the last.
                wanted = (canvas.step - decided) * expansion(rho, rule)
                canvas += [ids.mask] * min(wanted, rule.base * rule.cap, room)
            elif rho > exact(rule.high):
                for _ in range(expansion(rho, rule)):
                    wanted = rule.spare_content and guesses[len(canvas) - 1].token != ids.eos
                    if canvas[-1] != ids.mask or wanted:
                        break
                    canvas.pop()
        n, decided = n + 1, canvas.step


def daedal(canvas: Cells, rule: Rule, ids: Ids) -> Loop:
    """Two stages, expansion only."""
    guesses = yield Wish(everything=True)
    while signal(canvas, guesses, rule, ids) < exact(rule.low) and len(canvas) < rule.max_length:
        canvas += [ids.mask] * min(STAGE_ONE_GROWTH, rule.max_length - len(canvas))
        guesses = yield Wish(everything=True)
    canvas += [ids.eos] * min(STAGE_ONE_EOS, rule.max_length - len(canvas))

    while ids.mask in canvas:
        guesses = yield
        rho = signal(canvas, guesses, rule, ids)
        block = candidates(canvas, rule, ids)
        commit(canvas, guesses, rule, ids)
        if rho < exact(rule.high) and len(canvas) < rule.max_length:
            unsure = [
                at
                for at in block
                if canvas[at] == ids.mask and guesses[at].confidence < INSERT_BELOW
            ]
            if unsure:
                at = min(unsure, key=lambda at: guesses[at].confidence)
                canvas[at + 1 : at + 1] = [ids.mask] * (INSERTION - 1)
                del canvas[rule.max_length :]


def frontier(canvas: Cells, rule: Rule, ids: Ids) -> Loop:
    """64 MASKs ahead while no end is in sight; 16 behind the end once it is."""
    while ids.mask in canvas:
        guesses = yield
        masked = [at for at, token in enumerate(canvas) if token == ids.mask]
        ends = [guesses[at].token if at in masked else canvas[at] for at in range(len(canvas))]
        behind = 0  # MASKs among the EOS at the end of the canvas
        for at in reversed(range(len(canvas))):
            if ends[at] != ids.eos:
                break
            behind += at in masked
        in_sight = ends[-1] == ids.eos
        commit(canvas, guesses, rule, ids)
        if not in_sight and len(masked) < 64 and len(canvas) < rule.max_length:
            room = rule.max_length - len(canvas)
            canvas += [ids.mask] * min(64 - len(masked) + 32, room)
        elif in_sight:
            trailing = 0
            while trailing < len(canvas) and canvas[-1 - trailing] == ids.mask:
                trailing += 1
            left = [at for at in masked if canvas[at] == ids.mask]
            ending = [at for at in left if all(t == ids.eos for t in ends[at:])]
            count = min(behind - 16, len(ending))
            if 8 <= count <= trailing:
                del canvas[len(canvas) - count :]


def landing(canvas: Cells, rule: Rule, ids: Ids) -> Loop:
    """The end of the text as a change point of P(EOS) over the MASKs."""
    while ids.mask in canvas:
        guesses = yield
        masked = [at for at, token in enumerate(canvas) if token == ids.mask]
        ended = any(token in ids.ends for token in canvas)
        likely = [min(max(guesses[at].eos, 0.02), 0.98) for at in masked]
        m = len(masked)
        scores = [
            sum(math.log(1 - e) for e in likely[:b]) + sum(math.log(e) for e in likely[b:])
            for b in range(m + 1)
        ]
        best = max(range(m + 1), key=lambda b: scores[b])
        fits = best <= m - 8 and scores[best] > scores[m] + 2 * math.log(m + 1)
        written = len(canvas) - m
        commit(canvas, guesses, rule, ids)
        if not fits:
            if not ended and len(canvas) < rule.max_length:
                room = rule.max_length - len(canvas)
                canvas += [ids.mask] * min(max(64, len(canvas) // 2), room)
            continue
        slack = 0.5 - 0.4 * written / max(1, written + best)
        spare = m - best - max(16, math.ceil(slack * best))
        trailing = 0
        while trailing < len(canvas) and canvas[-1 - trailing] == ids.mask:
            trailing += 1
        if min(spare, trailing) > 16:
            del canvas[len(canvas) - min(spare, trailing) :]


def scout(canvas: Cells, rule: Rule, ids: Ids) -> Loop:
    """What a short canvas foretells is kept; the length is read on a long one. If that would begin
    with another text, there is room for all of it from then on, and it stays; else only for what
    comes next. An end that comes much sooner is doubted once, and believed only if a long canvas
    shows it too."""
    longest = max(rule.look, rule.initial_length)
    block = rule.block or 1
    next_ = -(-32 // block)  # blocks
    del canvas[:]
    canvas += [ids.mask] * min(-(-longest // 2), rule.max_length)
    ends_seen: list[int] = []
    goal, expected, doubted, wide, compared = len(canvas), -1, None, False, False
    while ids.mask in canvas:
        short = [ids.mask] * (next_ * block)
        look = expected < 0 and rule.trust > 0 and not compared and len(short) < len(canvas)
        guesses = yield Wish(everything=goal > 0, aside=short if look else [])
        open_ = [at for at, token in enumerate(canvas) if token == ids.mask]
        shown = [guesses[at].token if at in open_ else canvas[at] for at in range(len(canvas))]
        end = len(canvas)
        while end > 0 and shown[end - 1] == ids.eos:
            end -= 1
        in_sight = end < len(canvas)
        ended = any(token in ids.ends for token in canvas)
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
        if len(canvas) < min(goal, rule.max_length):
            canvas += [ids.mask] * (min(goal, rule.max_length) - len(canvas))
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
            if not any(token in ids.ends for token in canvas):
                canvas += [ids.mask] * (min(most, rule.max_length) - len(canvas))
            continue
        if in_sight and wide:
            most = expected + max(rule.margin, 32, expected // 2)
        elif in_sight:
            most = min(most, end + rule.margin)
        count = 0
        while len(canvas) - count > most and canvas[-1 - count] == ids.mask:
            count += 1
        if count >= 8:
            del canvas[len(canvas) - count :]


def blocks(canvas: Cells, rule: Rule, ids: Ids) -> Loop:
    """One block after the other, until one holds an end."""
    while ids.mask in canvas:
        guesses = yield
        commit(canvas, guesses, rule, ids)
        ended = any(token in ids.ends for token in canvas)
        if ids.mask not in canvas and not ended:
            canvas += [ids.mask] * min(rule.initial_length, rule.max_length - len(canvas))


def dreamon(canvas: Cells, rule: Rule, ids: Ids) -> Loop:
    """One MASK a step: a token, or EXPAND (two MASKs), or EOS (it goes, and the MASKs behind)."""
    budget = rule.budget
    for _ in range(rule.most_steps):
        masked = [at for at, token in enumerate(canvas) if token == ids.mask]
        if not masked:
            return
        full = len(canvas) >= rule.max_length or budget == 0
        guesses = yield Wish(forbid=(rule.expand,) if full else (), more=True)
        at = {
            "entropy": lambda: min(masked, key=lambda at: guesses[at].entropy),  # noqa: B023
            "confidence": lambda: max(masked, key=lambda at: guesses[at].confidence),  # noqa: B023
            "margin": lambda: max(masked, key=lambda at: guesses[at].margin),  # noqa: B023
        }[rule.order]()
        token = guesses[at].token
        if token == rule.expand:
            canvas[at : at + 1] = [ids.mask] * 2
            budget -= 1
        elif token == ids.eos:
            canvas[at:] = [token for token in canvas[at:] if token != ids.mask]
        else:
            canvas[at] = token


def cal(canvas: Cells, rule: Rule, ids: Ids) -> Loop:
    """Lengths are tried upwards, then downwards, from where the canvas starts; then the τ rule."""
    start = len(canvas)
    hide = rule.behind if rule.evidence == "suffix" else 0
    scores: dict[int, float] = {}
    best = start
    for direction in (1, -1):
        length, worse = (start if direction > 0 else start - rule.stride), 0
        while 1 <= length <= rule.max_length and worse < rule.patience:
            canvas[:] = [ids.mask] * length
            guesses = yield Wish(hide=hide, more=True)
            if rule.evidence == "suffix":
                seen = [guess.standing for guess in guesses[length : length + hide]]
                scores[length] = sum(math.log(max(p, 1e-9)) for p in seen) / max(1, len(seen))
            else:
                bias = math.exp(-1.77 * length) + 0.56 * math.exp(-0.06 * length) + 0.24
                mean = sum(guess.confidence for guess in guesses[:length]) / length
                scores[length] = mean / bias
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
    "frontier": frontier,
    "landing": landing,
    "scout": scout,
    "blocks": blocks,
    "dreamon": dreamon,
    "cal": cal,
}


# -- their parts ----------------------------------------------------------------------------------


def candidates(canvas: list[int], rule: Rule, ids: Ids) -> list[int]:
    """The MASKs that may be committed now: those of the first block that still holds one."""
    masked = [at for at, token in enumerate(canvas) if token == ids.mask]
    if rule.block is None or not masked:
        return masked
    return [at for at in masked if at // rule.block == masked[0] // rule.block]


def commit(
    canvas: Cells, guesses: Sequence[Guess] | dict[int, Guess], rule: Rule, ids: Ids
) -> None:
    """What the commit rule writes, and what it takes back."""
    now = [at for at in candidates(canvas, rule, ids) if isinstance(guesses, list) or at in guesses]
    write(canvas, *chosen(canvas, now, guesses, rule, ids), guesses, ids)


def write(
    canvas: Cells,
    written: list[int],
    taken: list[int],
    guesses: Sequence[Guess] | dict[int, Guess],
    ids: Ids,
) -> None:
    for at in written:
        canvas[at] = guesses[at].token
        canvas.memory[at]["committed"] = True
    for at in taken:
        canvas[at] = ids.mask
        for name in ("committed", "shares", "moves"):
            canvas.memory[at].pop(name, None)


def chosen(
    canvas: Cells,
    now: list[int],
    guesses: Sequence[Guess] | dict[int, Guess],
    rule: Rule,
    ids: Ids,
) -> tuple[list[int], list[int]]:
    """The candidates that are committed, and the committed tokens that become MASK again."""
    measure = {
        "confidence": lambda at: guesses[at].confidence,
        "margin": lambda at: guesses[at].margin,
        "entropy": lambda at: -guesses[at].entropy,
    }[rule.commit_order]
    order = sorted(now, key=lambda at: -measure(at))
    if rule.commit == "threshold":
        sure = [at for at in now if guesses[at].confidence > rule.threshold]
        most = max(measure(at) for at in now)
        return sure or [at for at in now if measure(at) >= most - rule.tie][:1], []
    if rule.commit == "quota":
        sure = [at for at in now if guesses[at].confidence > rule.threshold]
        share = quota(canvas, rule, ids)
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
        calm = [
            at
            for at in now
            if len(canvas.memory[at]["moves"]) >= rule.stable_steps
            and all(
                move < rule.stability for move in canvas.memory[at]["moves"][-rule.stable_steps :]
            )
            and guesses[at].confidence > rule.threshold
        ]
        return calm or order[:1], []
    assert rule.commit == "wino"
    sure = [at for at in now if guesses[at].confidence > rule.draft] or order[:1]
    doubtful = [at for at, share in canvas.hidden.items() if share < rule.verify]
    doubtful.sort(key=lambda at: canvas.hidden[at])
    return sure, doubtful[: max(0, len(sure) - 1)]


def remember(
    canvas: Cells, guesses: Sequence[Guess] | dict[int, Guess], rule: Rule, ids: Ids
) -> None:
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
    block = rule.block or len(canvas)
    starts = range(0, len(canvas), block)
    first = candidates(canvas, rule, ids)[0]
    members = range(first // block * block, min(first // block * block + block, len(canvas)))
    steps = len(members)
    if rule.steps_per_block is not None:
        steps = rule.steps_per_block
    elif rule.steps is not None:
        share, rest = divmod(rule.steps, len(starts))
        steps = share + (first // block < rest)
    shares = equal_shares(len(members), max(1, min(steps, len(members))))
    made = sum(canvas[at] != ids.mask for at in members)
    while made >= shares[0]:
        made -= shares.pop(0)
    return shares[0]


def signal(canvas: list[int], guesses: list[Guess], rule: Rule, ids: Ids) -> Fraction:
    """The number the length follows, exact: a region's border belongs to the region."""
    if rule.signal == "confidence":
        return Fraction(eos_confidence(guesses, ids))
    masked = [at for at, token in enumerate(canvas) if token == ids.mask]
    return Fraction(sum(guesses[at].token == ids.eos for at in masked), len(masked))


def density(canvas: list[int], guesses: list[Guess], ids: Ids) -> float | None:
    """ρ, for the record; None when no MASK is left."""
    masked = [at for at, token in enumerate(canvas) if token == ids.mask]
    if not masked:
        return None
    return sum(guesses[at].token == ids.eos for at in masked) / len(masked)


def eos_confidence(guesses: list[Guess], ids: Ids) -> float:
    """Σ P(EOS) over the last 32 positions whose argmax is EOS, over 32."""
    total, seen = 0.0, 0
    for guess in reversed(guesses):
        if guess.token == ids.eos and seen < EOS_WINDOW:
            total += guess.eos
            seen += 1
    return total / EOS_WINDOW


def expansion(rho: Fraction, rule: Rule) -> int:
    """E(ρ) = base · m(s), s whole intervals away from the region, m capped."""
    distance = max(exact(rule.low) - rho, rho - exact(rule.high))
    s = max(1, math.ceil(distance / exact(rule.interval)))
    m = {"constant": 1, "linear": s, "exponential": 2 ** (s - 1)}[rule.expansion]
    return rule.base * min(m, rule.cap)


def equal_shares(total: int, steps: int) -> list[int]:
    """`total` commits over `steps` steps, the remainder to the first; empty steps are left out."""
    share, rest = divmod(total, steps)
    shares = [share + (step < rest) for step in range(steps)]
    return [share for share in shares if share]


def exact(number: float) -> Fraction:
    """The decimal that was written: 0.4 is 4/10, not the nearest binary fraction."""
    return Fraction(str(number))
