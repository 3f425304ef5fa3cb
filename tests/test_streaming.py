from hypothesis import given
from hypothesis import strategies as st

from rho_eos.text.streaming import TextDelta


@given(text=st.text(max_size=60), bounds=st.lists(st.integers(0, 200), max_size=8))
def test_deltas_joined_are_the_text_and_never_split_a_character(text, bounds) -> None:
    data = text.replace("\ufffd", "").encode()
    delta = TextDelta()
    seen = (data[:bound].decode(errors="replace") for bound in sorted(bounds))
    parts = [delta.push(text) for text in seen]
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
    parts = [delta.push(text[:bound].split(stop)[0]) for bound in sorted(bounds)]
    parts.append(delta.push(full, final=True))
    assert "".join(parts) == full
