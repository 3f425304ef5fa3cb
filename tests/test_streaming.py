import pytest
from hypothesis import given
from hypothesis import strategies as st

from rho_eos.text.streaming import Beginning, TextDelta


def cuts(text: str, bounds: list[int]) -> list[int]:
    return sorted({min(bound, len(text)) for bound in bounds})


@given(text=st.text(max_size=60), bounds=st.lists(st.integers(0, 200), max_size=8))
def test_deltas_joined_are_the_text_and_never_split_a_character(text, bounds) -> None:
    data = text.replace("\ufffd", "").encode()
    delta = TextDelta()
    parts = [
        delta.push(data[:bound].decode(errors="replace"))
        for bound in sorted({min(bound, len(data)) for bound in bounds})
    ]
    parts.append(delta.push(data.decode(), final=True))
    assert "".join(parts) == data.decode()
    assert not any("\ufffd" in part for part in parts)


@given(
    text=st.text(alphabet="ab", max_size=20),
    stop=st.text(alphabet="ab", min_size=1, max_size=4),
    bounds=st.lists(st.integers(0, 20), max_size=8),
)
def test_nothing_of_a_stop_string_is_sent(text, stop, bounds) -> None:
    """The engine cuts the text at the stop string; what was sent before must agree with that."""
    full = text.split(stop)[0]
    delta = TextDelta([stop])
    parts = [delta.push(text[:bound].split(stop)[0]) for bound in cuts(text, bounds)]
    parts.append(delta.push(full, final=True))
    assert "".join(parts) == full


def longest_beginning(stop: str, text: str) -> int:
    """By definition, one length after the other."""
    sizes = [size for size in range(1, len(stop)) if text.endswith(stop[:size])]
    return max(sizes, default=0)


@given(
    text=st.text(alphabet="ab", max_size=40),
    stop=st.text(alphabet="ab", min_size=1, max_size=8),
    bounds=st.lists(st.integers(0, 40), max_size=12),
    others=st.lists(st.text(alphabet="ab", max_size=10), max_size=2),
)
def test_the_beginning_of_a_stop_string_is_found_however_a_text_grows(
    text: str, stop: str, bounds: list[int], others: list[str]
) -> None:
    """Also where it does not grow: a tokenizer may change its mind about the end."""
    beginning = Beginning(stop)
    for each in [*(text[:bound] for bound in cuts(text, bounds)), *others]:
        assert beginning.at_end_of(each) == longest_beginning(stop, each)


@pytest.mark.parametrize("unit", ["x", "xy", "xxxxxxxy"])
def test_each_character_is_looked_at_a_bounded_number_of_times(unit: str) -> None:
    """Quadratic matching of a stop string made of one letter stopped a server for 12 seconds."""

    class Counted(Beginning):
        looks = 0

        def _next(self, matched: int, character: str) -> int:
            Counted.looks += 1
            return super()._next(matched, character)

    size = 4096
    beginning = Counted((unit * size)[:size] + "!")
    text = (unit * size)[: 2 * size]
    for end in range(1, len(text) + 1, 7):
        beginning.at_end_of(text[:end])
    assert Counted.looks <= len(text) + size + 1
