"""Files that people write by hand, and of which no more is read than such a file can hold."""

import errno
from pathlib import Path

LARGEST = 16 * 2**20


def read_small(path: Path) -> bytes:
    """All of a file. It may be a pipe; one without an end, such as /dev/zero, is an `OSError`."""
    with path.open("rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        reason = f"it is larger than {LARGEST} bytes, the most that is read"
        raise OSError(errno.EFBIG, reason, str(path))
    return data
