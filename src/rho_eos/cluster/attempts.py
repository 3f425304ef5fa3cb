"""How often each request was begun. Its process counts and does nothing else, so this imports
neither torch nor an engine: they would take seconds and half a gigabyte there."""

from collections import Counter


class Attempts:
    """Counts how often each request was begun: Ray gives a block of a dead actor out for ever."""

    def __init__(self) -> None:
        self._begun: Counter[str] = Counter()

    def begin(self, ids: list[str]) -> list[int]:
        """These are begun once more; how often by now."""
        self._begun.update(ids)
        return [self._begun[id] for id in ids]
