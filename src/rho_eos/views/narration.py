"""What a step means, in words: titles of the parts that decode, and why a length changed.

A part from outside may bring words of its own: an attribute `title`; a policy also a class method
`explain(params, record)` that returns a sentence about a step.
"""

from collections.abc import Callable
from typing import Any

from rho_eos.base.outputs import StepRecord
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.registry import find_policy
from rho_eos.decoding.schema import parts

RHO = "ρ"
#: What is called otherwise than by its name, by axis.
TITLES = {
    "policy": {
        "rho-eos": "ρ-EOS",
        "released": "ρ-EOS, released code",
        "fixed": "Fixed length",
        "daedal": "DAEDAL",
        "blocks": "Blocks until EOS",
        "scout": "Scout",
        "quantile": "Quantile",
        "cal": "CAL",
        "dreamon": "DreamOn",
    },
    "commit": {
        "threshold": "Threshold τ",
        "quota": "Quota",
        "factor": "Factor",
        "entropy-bound": "Entropy bound",
        "klass": "KLASS",
        "wino": "WINO",
        "editing": "Editing",
    },
    "cache": {"none": "None", "window": "Window", "blocks": "Blocks"},
}


def title_of(name: str, axis: str = "policy") -> str:
    """What people call a policy, a commit rule or a cache."""
    return TITLES[axis].get(name) or str(getattr(parts()[axis].get(name), "title", name))


def signal_name(params: Any) -> str:
    """What people call the number that the length is decided by."""
    if params.policy == "cal":
        confident = params.evidence == "confidence"
        return "confidence" if confident else "fit of the text behind"
    if params.policy == "quantile":
        return "risk"
    confidence = params.policy == "released" or getattr(params, "signal", "") == "confidence"
    return "EOS confidence" if confidence else RHO


def explain(params: DecodeParams, record: StepRecord) -> str:
    """Why a step did to the length what it did: a sentence or two for live views."""
    if not record.refresh:
        computed = f"{record.computed} of {record.exact} positions computed"
        return f"A window: {computed}, so the length holds."
    own = getattr(find_policy(params.policy), "explain", _by_region)
    why = _EXPLAIN.get(params.policy, own)(params, record)
    return f"{record.note} {why}" if record.note else why


def _by_region(params: Any, record: StepRecord) -> str:
    if record.signal is None:
        return _change(record).capitalize()
    name = signal_name(params)
    now = f"{name} = {figure(record.signal, *(params.region or ()))}"
    if params.region is None:
        return f"{now}: {_change(record)}"
    low, high = params.region
    few, most = "too few MASKs expect the end", "most MASKs expect the end"
    if name != RHO:
        few, most = "it is not sure that the text ends here", "the text surely ends here"
    if record.change > 0 and record.signal < low:
        return f"{now} < {low:g}: {few}, {_change(record)}"
    if record.change < 0 and record.signal > high:
        return f"{now} > {high:g}: {most}, {_change(record)}"
    if not record.change and not low <= record.signal <= high:
        return (
            f"{now} is outside the region, but the length is final: "
            "the text is complete, or its limit is reached."
        )
    return f"{now} is in the region: the length holds."


def _fixed(params: Any, record: StepRecord) -> str:  # noqa: ARG001
    return "The length is fixed, whatever ρ says."


def _blocks(params: Any, record: StepRecord) -> str:
    if record.change:
        return f"The block is full and holds no end of text: the next {record.change} MASKs."
    if record.masks and not record.committed:
        return "What is finished is computed without MASKs behind it, so that it can be kept."
    if record.masks > len(record.committed):
        return "The block is not full yet."
    if not record.masks and record.committed:
        return "The block is full; what the model no longer believes in it is written anew."
    if record.length < params.max_new_tokens:
        return "The block is full: the text has ended."
    if record.length > params.max_new_tokens:
        return f"The block is full. Nothing behind position {params.max_new_tokens} is returned."
    return "The block is full: the text has ended, or the canvas is as long as it may be."


def _daedal(params: Any, record: StepRecord) -> str:
    if record.signal is None:
        return "The length holds."
    low, high, grown = params.rho_low, params.rho_high, record.change
    now = f"{signal_name(params)} = {figure(record.signal, low, high)}"
    if record.action == "expand":
        return f"{now} < {low:g}: the canvas grows by {grown} before anything is written."
    if record.action == "close":
        return f"{now}: long enough. Growing ends, with {grown} EOS behind the canvas."
    if record.action == "insert":
        return f"{now} < {high:g}: MASKs are inserted where the model is most doubtful."
    if record.length >= params.max_new_tokens:
        return f"{now}: the canvas is as long as it may be."
    if record.signal < high:
        return f"{now} < {high:g}, but no MASK is doubtful enough to insert."
    return f"{now}: the end is sure, nothing is inserted."


def _scout(params: Any, record: StepRecord) -> str:  # noqa: ARG001
    if record.change > 0 and record.masks == record.length and not record.committed:
        return f"Nothing is written before the length is read: {record.change} more MASKs."
    if record.change > 0 and not record.committed:
        return f"To see where the text really ends, the canvas grows by {record.change}."
    if record.change > 0:
        return f"The text goes on: {record.change} more MASKs ahead of it."
    if record.change < 0:
        return f"The rest of the canvas is not needed: {-record.change} MASKs are dropped."
    return "The length holds."


def _quantile(params: Any, record: StepRecord) -> str:
    if record.signal is None:
        return "The length holds."
    now = (
        f"The text is longer than the canvas with probability {figure(record.signal, params.risk)}"
    )
    if record.change > 0 and not record.committed:
        return (
            f"{now}, or that is not clear: before anything is written, {record.change} more MASKs."
        )
    if record.change > 0:
        return f"{now}, more than the risk of {params.risk:g}: the canvas grows by {record.change}."
    if record.change < 0:
        return f"{now}: {-record.change} MASKs more than the text is likely to need are dropped."
    return f"{now}: the length holds."


def _cal(params: Any, record: StepRecord) -> str:
    if record.signal is None and not record.committed:
        return "No text behind this gap says how long it is: " + (
            "it gets all the room that is left." if record.change else "its length holds."
        )
    if record.signal is None:
        return "The length is found; what the model is sure of is written."
    now = f"Several lengths were tried; the best {signal_name(params)} is {record.signal:.3f}"
    if not record.change:
        return f"{now}: the search goes on, or the length is right as it is."
    direction = "longer" if record.change > 0 else "shorter"
    return f"{now}, of a {direction} gap than it was."


def _dreamon(params: Any, record: StepRecord) -> str:  # noqa: ARG001
    if record.change > 0:
        return "The model asks for more room here: the MASK becomes two."
    if record.change < 0:
        return f"The model has nothing to say here: {-record.change} MASKs are deleted."
    return "The MASK that the model is surest of is filled."


_EXPLAIN: dict[str, Callable[[Any, StepRecord], str]] = {
    "fixed": _fixed,
    "blocks": _blocks,
    "daedal": _daedal,
    "scout": _scout,
    "quantile": _quantile,
    "cal": _cal,
    "dreamon": _dreamon,
}


def figure(number: float, *bounds: float) -> str:
    """With two digits, or as many as it takes to stand on the right side of its bounds."""
    for digits in range(2, 17):
        text = f"{number:.{digits}f}"
        shown = float(text)
        if all(
            (shown < bound, shown > bound) == (number < bound, number > bound) for bound in bounds
        ):
            return text
    return f"{number}"


def _change(record: StepRecord) -> str:
    if record.change > 0:
        return f"the canvas grows by {record.change}."
    return f"the canvas shrinks by {-record.change}." if record.change else "the length holds."
