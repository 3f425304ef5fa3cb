"""Parameters of any kind, drawn from the declarations of all policies, commit rules and caches."""

from collections.abc import Collection, Sequence
from typing import Any, get_origin

from hypothesis import reject
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from rho_eos.base.errors import UserError
from rho_eos.base.settings import bounds, choices, is_optional, item_of, kinds
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.params import DecodeParams, composed, parts_of
from rho_eos.decoding.policy import Policy
from rho_eos.decoding.registry import CACHES, COMMITS, find_policy, policies
from rho_eos.decoding.schema import AXES

LONGEST = 40  # of a canvas, unless a test says otherwise: longer ones take longer
#: What makes a canvas long is always given; all else only sometimes.
SHORT = ("max_new_tokens", "initial_length", "min_new_tokens", "steps")
LENGTHS = (
    ("max_new_tokens", "initial_length"),
    ("initial_length", "min_new_tokens"),
    ("initial_length", "steps"),
)
RULES = [name for name in COMMITS.all() if not COMMITS.is_foreign(name)]
#: Those that write a cell for good, or make it a MASK again: no token becomes another one.
SETTLED = [rule for rule in RULES if not COMMITS.find(rule).needs.whole_canvas]
EVERY_CACHE = (  # of models whose positions all see all
    "none",
    *(n for n, each in CACHES.all().items() if not CACHES.is_foreign(n) and not each.for_blocks),
)


def combinations(special: SpecialTokens) -> list[tuple[str, str]]:
    """Every policy of ours with every commit rule that it takes."""
    return [
        (policy, rule)
        for rule in RULES
        for policy in policies_for(special)
        if find_policy(policy).rule is None or rule == RULES[0]
    ]


def policies_for(special: SpecialTokens, wanted: type = Policy) -> list[str]:
    """Ours that decode models with these special tokens, and are of the kind that is wanted."""
    able = []
    for name, policy in policies().items():
        if policy.__module__.startswith("rho_eos.") and issubclass(policy, wanted):
            try:
                policy.refuse(special)
            except UserError:
                continue
            able.append(name)
    return able


def _numbers(name: str, field: FieldInfo, whole: bool, longest: int) -> st.SearchStrategy[Any]:
    limits = bounds(field)
    low, high = limits.get("ge", limits.get("gt")), limits.get("le", limits.get("lt"))
    assert low is not None and high is not None, f"{name} has no bounds"
    if name in SHORT:
        return st.integers(int(low), longest)
    if whole:
        near = st.integers(int(low), int(min(high, low + longest)))
        return near | st.sampled_from([int(low), int(high)]) | st.integers(int(low), int(high))
    open_ = "gt" in limits
    return st.floats(low, high, exclude_min=open_) | st.sampled_from(
        [high, 5e-324 if open_ and low == 0 else low, field.default]
    )


def _values(name: str, field: FieldInfo, longest: int) -> st.SearchStrategy[Any]:
    kind = next(kind for kind in kinds(field.annotation) if kind is not type(None))
    if choices(field):
        strategy: st.SearchStrategy[Any] = st.sampled_from(choices(field))
    elif kind is bool:
        strategy = st.booleans()
    elif kind in (int, float):
        strategy = _numbers(name, field, kind is int, longest)
    else:
        assert get_origin(kind) is tuple, f"{name} is of a kind that this test does not know"
        item = item_of(field)
        assert item is not None
        ids = st.integers(0, 30)
        one = ids if int in kinds(item.annotation) else st.text("abcdefgh", min_size=1, max_size=5)
        strategy = st.lists(one, max_size=3)
    return strategy | st.none() if is_optional(field) else strategy


@st.composite
def any_parameters(
    draw: st.DrawFn,
    policies: Sequence[str],
    rules: Sequence[str] = RULES,
    caches: Sequence[str] = EVERY_CACHE,
    without: Collection[str] = (),
    longest: int = LONGEST,
) -> DecodeParams:
    """One of these policies, commit rules and caches, and any parameters that they have.

    Args:
        without: Parameters that keep their defaults.
    """
    axes: dict[str, str] = {"policy": draw(st.sampled_from(policies))}
    if find_policy(axes["policy"]).rule is None:
        axes["commit"] = draw(st.sampled_from(rules))
    axes["cache"] = draw(st.sampled_from(caches))
    given = {
        name: draw(_values(name, field, longest))
        for name, field in composed(parts_of(axes)).model_fields.items()
        if name not in (*AXES, *without) and (name in SHORT or draw(st.booleans()))
    }
    # Most pairs of lengths would be refused: the second of each is made to fit the first.
    for longer, shorter in LENGTHS:
        if given.get(longer) is not None and given.get(shorter) is not None:
            given[shorter] = min(given[longer], given[shorter])
    if "rho_low" in given or "rho_high" in given:
        region = given.get("rho_low", 0.4), given.get("rho_high", 0.8)
        given["rho_low"], given["rho_high"] = sorted(region)
    try:
        return DecodeParams(**axes, **given)
    except UserError:  # several of them do not go together; any other error is a failure
        reject()
