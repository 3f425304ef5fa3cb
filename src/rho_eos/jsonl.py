"""JSON Lines that survive interruptions: read with line numbers, append line by line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from rho_eos.errors import UserError


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any] | UserError]]:
    """Number and object of every line; one that is no object yields the complaint instead."""
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                if raw.strip():
                    yield number, _parse(raw, f"{path}:{number}")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def _parse(raw: bytes, where: str) -> dict[str, Any] | UserError:
    try:
        line = json.loads(raw)
    except ValueError as error:
        return UserError(f"{where}: not JSON: {error}")
    return line if isinstance(line, dict) else UserError(f"{where}: not a JSON object")


class ResultFile:
    """An append-only results file. Opening it repairs a half-written last line and learns the ids.

    Every line is flushed as it is written, so that a killed process loses at most the line it was
    writing, which the next one drops and makes again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ids: set[str] = set()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("r+b" if path.exists() else "w+b")
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror or error}") from error
        self._recover()

    def append(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        self._file.flush()
        self.ids.add(line["id"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _recover(self) -> None:
        """Keep every complete line; stop before one that is cut off or no result of ours."""
        good_end = 0
        for number, raw in enumerate(self._file, start=1):
            parsed = _parse(raw, f"{self.path}:{number}") if raw.endswith(b"\n") else None
            if parsed is None:
                break
            if isinstance(parsed, UserError) or not isinstance(parsed.get("id"), str):
                self._file.close()
                raise UserError(f"{self.path}:{number}: not a result line; is this the right file?")
            self.ids.add(parsed["id"])
            good_end += len(raw)
        self._file.seek(good_end)
        self._file.truncate()
