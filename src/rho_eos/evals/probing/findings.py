"""What the lines of a probe amount to, as numbers and in words."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

import numpy as np

from rho_eos.decoding.curve import SHARES
from rho_eos.evals.runs.stats import Estimate, share_of

STEP, RAMP = 1.5, 2.0  # how many times the 10% quantile the 90% quantile is
TRUSTED = 0.9  # of the beginning that a short canvas foretells; `scout` asks for as much
SURE = 0.1  # a share that was promised may be missed by so much
FEW = 50  # prompts; fewer are a first look
ROOM = 1.25  # how much longer than a text the canvas is on which its length is read

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Canvas:
    """What empty canvases of one length say, over all prompts."""

    length: int
    curve: list[float]  # the mean of F, at 33 lengths from 0 to this one
    middle: float | None  # the median of the lengths that suffice with probability one half
    confirmed: float | None  # how much of the beginnings foretold here the longest canvas confirms
    trusted: float | None  # the share of prompts with which that is enough for `scout`


@dataclass(frozen=True, slots=True)
class Reliability:
    """Of the lengths that suffice with this probability, by the model: how often they do."""

    predicted: float
    actual: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    prompts: int
    canvases: list[Canvas]
    steepness: float | None  # the median of 90% quantile over 10% quantile, on the longest canvas
    wide: float | None  # the share of prompts with which it is 2 or more
    unseen: float  # the share of prompts whose 90% quantile lies beyond the longest canvas
    needed: int | None  # of the 90% quantiles there, the one that nine in ten prompts do not exceed
    reliability: list[Reliability]
    lengths: list[int]  # of the texts that ended, in tokens
    ended: Estimate
    orders: dict[str, Estimate]  # accuracy by the order of writing, where answers were graded
    drift: float | None = None  # the largest difference of F between two ways to compute
    against: str = ""  # the other way

    @property
    def shape(self) -> str:
        if self.steepness is None:
            return "no end in sight"
        if self.steepness < STEP:
            return "a step"
        return "a ramp" if self.steepness >= RAMP else "between a step and a ramp"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "shape": self.shape, "advice": advice(self)}


def findings(lines: Sequence[Line], drift: float | None = None, against: str = "") -> Findings:
    """From one line a prompt."""
    by_length: dict[int, list[tuple[Line, Line]]] = {}  # each with the longest of its prompt
    for line in lines:
        for look in line["looks"]:
            by_length.setdefault(look["length"], []).append((look, line["looks"][-1]))
    last = [line["looks"][-1] for line in lines]
    most = [look["quantiles"][-1] for look in last]
    ratios = [
        look["quantiles"][-1] / max(1, look["quantiles"][0])
        for look in last
        if look["quantiles"][-1] is not None
    ]
    seen = [n for n in most if n is not None]
    orders: dict[str, list[bool]] = {}
    for line in lines:
        for name, right in line.get("right", {}).items():
            orders.setdefault(name, []).append(right)
    return Findings(
        prompts=len(lines),
        canvases=[_canvas(length, pairs) for length, pairs in sorted(by_length.items())],
        steepness=median(ratios) if 2 * len(ratios) > len(lines) else None,
        wide=fmean(ratio >= RAMP for ratio in ratios) if ratios else None,
        unseen=1 - len(seen) / len(lines),
        needed=int(np.quantile(seen, 0.9, method="higher")) if seen else None,
        reliability=[_reliability(at, lines) for at in range(len(SHARES))],
        lengths=sorted(line["tokens"] for line in lines if line["ended"]),
        ended=share_of([float(line["ended"]) for line in lines]),
        orders={name: share_of([float(r) for r in right]) for name, right in orders.items()},
        drift=drift,
        against=against,
    )


def _canvas(length: int, pairs: Sequence[tuple[Line, Line]]) -> Canvas:
    middles = [look["quantiles"][SHARES.index(0.5)] for look, _ in pairs]
    known = [n for n in middles if n is not None]
    confirmed = [_confirmed(look, longest) for look, longest in pairs if look is not longest]
    return Canvas(
        length,
        np.mean([look["curve"] for look, _ in pairs], axis=0).round(4).tolist(),
        median(known) if 2 * len(known) > len(pairs) else None,
        fmean(confirmed) if confirmed else None,
        fmean(share >= TRUSTED for share in confirmed) if confirmed else None,
    )


def _confirmed(short: Line, longest: Line) -> float:
    pairs = list(zip(short["guess"], longest["guess"], strict=False))
    return fmean(one == other for one, other in pairs) if pairs else 0.0


def _reliability(at: int, lines: Iterable[Line]) -> Reliability:
    """A quantile beyond the canvas is right about every text: it claims no more."""
    held = [
        float(n is None or (line["ended"] and line["tokens"] <= n))
        for line in lines
        for n in [line["written"]["quantiles"][at]]
    ]
    return Reliability(SHARES[at], share_of(held))


def advice(found: Findings) -> list[str]:
    """What follows for whoever decodes this model, in sentences."""
    said: list[str] = []
    longest = found.canvases[-1].length
    if found.steepness is None:
        said.append(
            f"On {longest} MASKs most texts show no end: this model does not pad its answers, or "
            "they are longer. Policies that read a length have nothing to read; use `--policy "
            "blocks`, or probe longer canvases with --canvases."
        )
        return said
    if found.prompts < FEW:
        said.append(f"A first look, no more: {found.prompts} prompts say little.")
    said.append(
        f"With most prompts the curve is {found.shape}: the length that suffices with 90% is "
        f"{found.steepness:.1f} times the one that suffices with 10%."
    )
    shorter = [each for each in found.canvases[:-1] if each.trusted is not None]
    if shorter:
        short = shorter[0]
        assert short.trusted is not None
        said.append(
            f"With {short.trusted:.0%} of the prompts {longest} MASKs confirm what {short.length} "
            "foretold of the beginning"
            + (
                ": short canvases can be believed."
                if short.trusted >= TRUSTED
                else ": a short canvas changes the text, so read the length on a long one."
            )
        )
    bold = [each for each in found.reliability if _is_bold(each)]
    if bold:
        worst = max(bold, key=lambda each: each.predicted - each.actual.mean)
        said.append(
            f"Its account of lengths promises too much: what it says suffices with "
            f"{worst.predicted:.0%} did with {worst.actual.mean:.0%} of {found.prompts} texts."
        )
    else:
        said.append(
            f"Nothing in {found.prompts} texts speaks against its account of lengths: a stated "
            "risk can be taken at its word, as far as so many texts can show."
        )
    assert found.needed is not None
    look = max(64, 2 ** int(np.ceil(np.log2(max(1, ROOM * found.needed)))))
    said.append(
        f"Nine in ten prompts need at most {found.needed} tokens at a risk of 10%: use "
        f"`--policy scout --look {look}`, or `--policy quantile --risk 0.1 --look {look}` where a "
        "stated risk is wanted."
    )
    return said


def _is_bold(each: Reliability) -> bool:
    """It promised more than it kept, by more than chance explains and by enough to matter. Where
    lengths of several quantiles are the same, as on a step, the small ones keep more."""
    assert each.actual.interval is not None
    missed = each.predicted - each.actual.mean
    return each.actual.interval[1] < each.predicted and missed > SURE
