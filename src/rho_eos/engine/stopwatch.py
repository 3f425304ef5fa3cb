"""Where the time of a step goes, for benchmarks."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Adds up time; several threads may be inside at once, and each counts its part of it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._lock = threading.Lock()

    @contextmanager
    def running(self, parallel: int = 1) -> Iterator[None]:
        """`parallel`: how many threads share the wall time."""
        started = time.perf_counter()
        yield
        with self._lock:
            self.seconds += (time.perf_counter() - started) / parallel
