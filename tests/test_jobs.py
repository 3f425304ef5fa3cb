"""The runner of jobs: each answer is kept once, and nothing stays in flight."""

from collections.abc import Iterator

import pytest

from rho_eos.files.jobs import Answers, Item, run


def items(*ids: str) -> list[Item]:
    return [Item(id=id, ask={}) for id in ids]


class Echo:
    """Answers each item with its id in capitals, some of them more than once or not at all."""

    def __init__(self, times: dict[str, int] | None = None) -> None:
        self.times = times or {}
        self.asked: list[str] = []
        self.closed = False

    def __call__(self, asked: Iterator[Item]) -> Answers:
        try:
            for item in asked:
                self.asked.append(item.id)
                for _ in range(self.times.get(item.id, 1)):
                    yield item.id, item.id.upper()
        finally:
            self.closed = True


@pytest.mark.parametrize("threads", [0, 3])
def test_what_is_missing_is_answered_and_kept_once(threads: int) -> None:
    kept: list[str] = []
    echo = Echo({"c": 3})
    run(
        items("a", "b", "c", "d"),
        {"b"},
        echo,
        lambda item, answer: kept.append(f"{item.id}{answer}"),
        threads,
    )
    assert echo.asked == ["a", "c", "d"] and echo.closed
    assert sorted(kept) == ["aA", "cC", "dD"]


def test_one_that_is_never_answered_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="1 items were never answered"):
        run(items("a", "b"), (), Echo({"b": 0}), lambda *_: None)


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_what_fails_ends_the_run_and_takes_back_the_rest(
    error: type[BaseException], threads: int
) -> None:
    def fail(item: Item, _: str) -> None:
        if item.id == "b":
            raise error

    echo = Echo()
    with pytest.raises(error):
        run(items("a", "b", "c"), (), echo, fail, threads)
    assert echo.closed and (threads or "c" not in echo.asked)
