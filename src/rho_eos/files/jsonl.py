"""Results in JSON Lines that survive interruptions, appended line by line.

A results file belongs to the program: each of its lines begins with the same marker. A file that
holds anything else is never touched, a file is written by one process at a time, and a write that
fails leaves the file as it was before.
"""

import fcntl
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, KeysView
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Self

from rho_eos.base.errors import StorageError, UserError
from rho_eos.text.user_text import is_whole

#: How lines begin, unless their file says otherwise.
WITH_ID = b'{"id": "'
#: What may be half a character: only then is a line looked at twice.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")

#: Bytes of a line that is read at all: a small archive can hold a line of any length.
LONGEST_LINE = 16 * 2**20

Line = dict[str, Any]


def check_regular(path: Path) -> None:
    """Refuse pipes and devices, which need not have an end and cannot be read twice."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    if not stat.S_ISREG(mode):
        raise UserError(f"{path} is no regular file, and only those are read and written here")


def numbered(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Every line that is not blank, with its number. Of one that is too long only the beginning is
    given, which `parse` refuses: no more of it is ever in memory."""
    for number in count(1):
        raw = file.readline(LONGEST_LINE + 1)
        if not raw:
            return
        rest = raw
        while len(rest) > LONGEST_LINE and not rest.endswith(b"\n"):
            rest = file.readline(LONGEST_LINE + 1)
        if raw.strip():
            yield number, raw


def parse(raw: bytes) -> Any:
    """The JSON value of a line, or the error that says why there is none."""
    if len(raw) > LONGEST_LINE:
        return UserError(f"longer than {LONGEST_LINE} bytes, the most that is read")
    try:
        value = json.loads(raw)
        if _SURROGATE.search(raw) and not is_whole(json.dumps(value, ensure_ascii=False)):
            return UserError("holds half a character (an unpaired surrogate)")
    except RecursionError:
        return UserError("not JSON that can be read: it is nested too deeply")
    except ValueError as error:
        return UserError(f"not JSON: {error}")
    return value


def differences(begun: Line, asked: Line) -> list[str]:
    """What of the settings that results were begun with is asked for differently now, in words.

    Settings in settings count one by one, under their own names.
    """
    old, new = _flat(begun), _flat(json.loads(json.dumps(asked)))
    changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return [f"{name} {old.get(name)!r}, not {new.get(name)!r}" for name in changed]


def _flat(settings: Line) -> Line:
    flat: Line = {}
    for name, value in settings.items():
        flat |= _flat(value) if isinstance(value, dict) else {name: value}
    return flat


class ResultFile:
    """An append-only results file. Opening it locks it and learns its ids, and changes nothing.

    A line is written at once and whole, so that a killed process loses at most the line it was
    writing; `repair` drops that one. `marker` is how each line begins, `key` where its id stands.
    With `overwrite` what the file holds is forgotten, if it is ours.
    """

    def __init__(
        self, path: Path, *, marker: bytes = WITH_ID, key: str = "id", overwrite: bool = False
    ) -> None:
        self.path = path
        self.marker = marker
        self.key = key
        #: Where the line of an id stands: offset and size. Of several, the last.
        self.places: dict[str, tuple[int, int]] = {}
        self._end = 0  # of the last whole line
        self._missing = b""  # the line break that this line lacks
        self._fd = self._open_and_lock()
        try:
            self._learn(overwrite)
        except BaseException:
            os.close(self._fd)
            raise

    @property
    def ids(self) -> KeysView[str]:
        return self.places.keys()

    def line(self, id: str) -> Line:
        offset, size = self.places[id]
        line: Line = json.loads(os.pread(self._fd, size, offset))
        return line

    def repair(self) -> None:
        """Drop what a killed process left half-written; with `overwrite`, everything."""
        with self._unchanged_if_full():
            os.ftruncate(self._fd, self._end)
            self._write(self._missing)

    def append(self, *lines: Line) -> None:
        """Write lines, all of them or none."""
        encoded = [json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines]
        if not all(line.startswith(self.marker) for line in encoded):
            raise ValueError(f"a line of {self.path} begins with {self.marker!r}")
        if self._missing or os.fstat(self._fd).st_size != self._end:
            self.repair()
        start = self._end
        with self._unchanged_if_full():
            self._write(b"".join(encoded))
        for line, raw in zip(lines, encoded, strict=True):
            self.places[line[self.key]] = start, len(raw)
            start += len(raw)

    def keep_only(self, wanted: Callable[[Line], bool]) -> None:
        """Drop all other lines, all at once: a kill in between leaves the old file."""
        self.repair()
        if any(not wanted(json.loads(raw)) for raw in self._lines()):
            self._replace(raw for raw in self._lines() if wanted(json.loads(raw)))

    def put_in_order(self, ids: Iterable[str]) -> None:
        """Put the lines of `ids` first, in the order of `ids`, and replace the file at once."""
        self.repair()
        order = list(dict.fromkeys([*(id for id in ids if id in self.places), *self.places]))
        if order != list(self.places):
            places = [self.places[id] for id in order]
            self._replace(os.pread(self._fd, size, offset) for offset, size in places)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._fd)

    def _open_and_lock(self) -> int:
        if self.path.exists():
            check_regular(self.path)
        while True:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError as error:
                raise UserError(f"cannot write {self.path}: {error.strerror or error}") from error
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(fd), self.path.stat()):
                    return fd
            except BlockingIOError:
                os.close(fd)
                raise UserError(f"another process is writing {self.path}") from None
            except FileNotFoundError:
                pass
            os.close(fd)  # it was replaced while we waited for nobody: open the new one

    def _learn(self, overwrite: bool) -> None:
        """Keep every whole line; stop before one that is cut off; refuse what is not ours."""
        with os.fdopen(os.dup(self._fd), "rb") as file:
            if not self.marker.startswith(file.read(len(self.marker))):
                raise self._not_ours(1)
            if overwrite:
                return
            file.seek(0)
            for number, raw in enumerate(file, start=1):
                ended = raw.endswith(b"\n")
                if not raw.startswith(self.marker):
                    if ended or not self.marker.startswith(raw):
                        raise self._not_ours(number)
                    return
                line = parse(raw)
                if isinstance(line, UserError) and not ended:
                    return
                if not isinstance(line, dict) or not isinstance(line.get(self.key), str):
                    raise self._not_ours(number)
                self.places[line[self.key]] = self._end, len(raw)
                self._end += len(raw)
                self._missing = b"" if ended else b"\n"

    def _not_ours(self, number: int) -> UserError:
        return UserError(
            f"{self.path}:{number}: not a result line of this command; is this the right file?"
        )

    def _lines(self) -> Iterator[bytes]:
        with os.fdopen(os.dup(self._fd), "rb") as file:
            file.seek(0)
            yield from file

    def _write(self, data: bytes) -> None:
        view, end = memoryview(data), self._end
        while view:
            written = os.pwrite(self._fd, view, end)
            view, end = view[written:], end + written
        self._end = end
        self._missing = b""

    @contextmanager
    def _unchanged_if_full(self) -> Iterator[None]:
        """Where a write fails, the file gets back the size it had, and the user a sentence."""
        before = self._end
        try:
            yield
        except OSError as error:
            os.ftruncate(self._fd, before)
            raise _cannot_write(self.path, error) from error

    def _replace(self, lines: Iterator[bytes]) -> None:
        """Write another file and put it, locked as well, in the place of this one."""
        target = self.path.resolve()
        try:
            fd, draft = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        except OSError as error:
            raise _cannot_write(self.path, error) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.fchmod(fd, stat.S_IMODE(os.fstat(self._fd).st_mode))
            places: dict[str, tuple[int, int]] = {}
            end = 0
            with os.fdopen(os.dup(fd), "wb") as file:
                for raw in lines:
                    file.write(raw)
                    places[json.loads(raw)[self.key]] = end, len(raw)
                    end += len(raw)
            Path(draft).replace(target)
        except BaseException as error:
            os.close(fd)
            Path(draft).unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise _cannot_write(self.path, error) from error
            raise
        os.close(self._fd)
        self._fd, self._end, self.places = fd, end, places


def _cannot_write(path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"cannot write {path}: {error.strerror or error}; it holds what was finished before"
    )
