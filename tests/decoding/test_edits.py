"""Edits against a list of cells that is changed the obvious way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rho_eos import Canvas, DecodeParams, Keeps, Policy, Prediction, Step
from rho_eos.decoding.edits import (
    Append,
    Delete,
    Edit,
    EditError,
    Insert,
    Overwrite,
    Trim,
    apply_edits,
    runs,
)
from rho_eos.engine.request import Handle
from rho_eos.engine.row import Row
from tests.requests import request as request_for
from tests.scripted import EOS, MASK, SPECIAL

LIMIT = 40


@st.composite
def canvases_and_edits(draw: st.DrawFn) -> tuple[np.ndarray, tuple[Edit, ...]]:
    length = draw(st.integers(0, 12))
    canvas = np.array(draw(st.lists(st.integers(2, 9), min_size=length, max_size=length)))
    places = st.lists(st.integers(0, max(0, length - 1)), max_size=min(length, 4), unique=True)
    edits: list[Edit] = []
    for kind in draw(
        st.lists(st.sampled_from([Append, Trim, Insert, Delete, Overwrite]), max_size=4)
    ):
        if kind is Append:
            edits.append(Append(draw(st.integers(0, 5)), draw(st.none() | st.just(EOS))))
        elif kind is Trim:
            edits.append(Trim(draw(st.integers(0, length))))
        elif kind is Insert:
            edits.append(Insert(draw(st.integers(0, length)), draw(st.integers(0, 5))))
        else:
            at = np.array(sorted(draw(places)), dtype=np.int64)
            edits.append(Delete(at) if kind is Delete else Overwrite(at, np.full(len(at), 7)))
    return canvas.astype(np.int64), tuple(edits)


def naive(canvas: np.ndarray, edits: tuple[Edit, ...]) -> tuple[list[int], list[int]]:
    """Slots before each old cell and at the end; then everything is written out in order."""
    length = len(canvas)
    slots: list[list[int]] = [[] for _ in range(length + 1)]
    tokens: list[int | None] = canvas.tolist()
    for edit in edits:
        if isinstance(edit, Overwrite):
            for at, token in zip(edit.positions, edit.tokens, strict=True):
                tokens[at] = int(token)
    for edit in edits:
        if isinstance(edit, Append):
            slots[length] += [MASK if edit.token is None else edit.token] * edit.count
        elif isinstance(edit, Insert):
            slots[edit.at] += [MASK] * edit.count
        elif isinstance(edit, Trim):
            for at in range(length - edit.count, length):
                tokens[at] = None
        elif isinstance(edit, Delete):
            for at in edit.positions:
                tokens[at] = None
    result, moved = [], []
    for at in range(length + 1):
        result += slots[at]
        moved += [-1] * len(slots[at])
        if at < length and tokens[at] is not None:
            result.append(tokens[at])
            moved.append(at)
    return result, moved


@given(canvases_and_edits())
def test_edits_together_are_what_a_list_of_cells_gives(
    given: tuple[np.ndarray, tuple[Edit, ...]],
) -> None:
    canvas, edits = given
    before = canvas.copy()
    cells, went, changed = apply_edits(canvas, edits, MASK, LIMIT)
    tokens, moved = naive(canvas, edits)
    assert cells.tolist() == tokens
    assert went.tolist() == moved
    assert (canvas == before).all(), "the canvas that was given stays as it was"
    old = went[went >= 0]
    assert set(range(len(canvas))) - set(old.tolist()) <= set(changed.tolist())


@given(canvases_and_edits())
def test_runs_say_the_same_as_moved(given: tuple[np.ndarray, tuple[Edit, ...]]) -> None:
    _, moved, _ = apply_edits(*given, MASK, LIMIT)
    written_out = [
        -1 if first is None else first + offset
        for first, count in runs(moved)
        for offset in range(count)
    ]
    assert written_out == moved.tolist()
    assert all(count > 0 for _, count in runs(moved))


@pytest.mark.parametrize(
    "edit",
    [
        Append(2**62),  # refused before anything of that size is made
        Insert(0, 2**62),
        Append(LIMIT),
        Append(-1),
        Trim(5),
        Trim(-1),
        Insert(5, 1),
        Insert(-1, 1),
        Delete(np.array([4])),
        Delete(np.array([-1])),
        Overwrite(np.array([4]), np.array([7])),
    ],
)
def test_an_edit_that_does_not_fit_is_refused(edit: Edit) -> None:
    with pytest.raises(EditError):
        apply_edits(np.full(4, MASK), (edit,), MASK, LIMIT)


class Asks(Policy):
    """Commits nothing and makes the edits it was given."""

    name = "asks"
    edits = (Trim, Delete, Overwrite)

    def __init__(self, wanted: tuple[Edit, ...], keeps: Keeps) -> None:
        super().__init__(DecodeParams(), SPECIAL)
        self.wanted = wanted
        self.keeps = keeps  # type: ignore[misc]

    def step(self, canvas: Canvas, prediction: Prediction, commit: np.ndarray) -> Step:
        return Step(self.wanted, commit=np.empty(0, dtype=np.int64))


def canvas_after(canvas: list[int], edit: Edit, keeps: Keeps) -> list[int]:
    params = DecodeParams(initial_length=len(canvas), early_stop=False)
    row = Row(Handle(request_for("", [9], params, canvas)))
    row.policy = Asks((edit,), keeps)
    masked = row.canvas.masked
    sure = np.full(len(masked), 0.5)
    row.advance(Prediction(masked, np.full(len(masked), 9), sure, sure))
    return row.canvas.cells.tolist()


def test_a_policy_changes_committed_tokens_only_as_it_has_declared() -> None:
    canvas = [7, 8, MASK, 7, MASK, 8]
    last, first = Trim(1), Delete(np.array([0]))
    masks = Delete(np.array([2, 4]))
    for keeps in (Keeps.ALL, Keeps.PREFIX, Keeps.NOTHING):
        assert canvas_after(canvas, masks, keeps) == [7, 8, 7, 8]
    with pytest.raises(EditError, match="may not change a committed token"):
        canvas_after(canvas, last, Keeps.ALL)
    assert canvas_after(canvas, last, Keeps.PREFIX) == canvas[:-1]
    with pytest.raises(EditError, match="may not change a committed token"):
        canvas_after(canvas, first, Keeps.PREFIX)
    assert canvas_after(canvas, first, Keeps.NOTHING) == canvas[1:]
    overwritten = Overwrite(np.array([1]), np.array([MASK]))
    with pytest.raises(EditError, match="may not change a committed token"):
        canvas_after(canvas, overwritten, Keeps.PREFIX)
    assert canvas_after(canvas, overwritten, Keeps.NOTHING) == [7, MASK, *canvas[2:]]


def test_a_kind_of_edit_that_was_not_declared_is_refused() -> None:
    with pytest.raises(EditError, match="declares no Append"):
        canvas_after([7, MASK], Append(1), Keeps.ALL)
