"""A throw-away folder that can be removed whatever untrusted code has left in it."""

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path


@contextmanager
def scratch_folder() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="rho-eos-")
    try:
        yield folder
    finally:
        remove(Path(folder))


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it, however deep: what cannot be removed stays.

    Every folder inside is first moved to the top, so that no path gets long and nothing recurses.
    Its name there is random, so the code cannot have taken it before.
    """
    prefix = f".rho-eos-{secrets.token_hex(8)}"
    names = (folder / f"{prefix}-{number}" for number in count())
    waiting = [folder]
    while waiting:
        current = waiting.pop()
        with suppress(OSError):
            current.chmod(0o700)
            with os.scandir(current) as entries:
                for entry in list(entries):
                    with suppress(OSError):
                        if not entry.is_dir(follow_symlinks=False):
                            Path(entry.path).unlink()
                        elif current == folder:
                            waiting.append(Path(entry.path))
                        else:
                            Path(entry.path).chmod(0o700)  # moving it changes its `..`
                            waiting.append(Path(entry.path).rename(next(names)))
        if current != folder:
            with suppress(OSError):
                current.rmdir()
    with suppress(OSError):
        folder.rmdir()
