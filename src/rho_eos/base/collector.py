"""Pauses of the garbage collector where it would cost time and find nothing."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Pause it, for imports. Importing torch and transformers makes a million objects, all of which
    stay; looking through them again and again would take a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
