"""A run on disk: what was asked (`run.json`) and one line per sample (`samples.jsonl`).

A folder holds one run. It is opened by one process at a time, only for the settings it was
started with, and at any moment holds every finished sample exactly once.
"""

import json
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rho_eos.base.errors import StorageError, UserError
from rho_eos.files.jsonl import Line, ResultFile, differences
from rho_eos.files.rows import read_rows

SETTINGS = "run.json"
SAMPLES = "samples.jsonl"


def read_settings(folder: Path) -> dict[str, Any]:
    """The `settings` and the `sessions` of a run."""
    path = folder / SETTINGS
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {"settings": content["settings"], "sessions": content["sessions"]}
    except FileNotFoundError:
        raise UserError(f"{folder} is no run: it has no {SETTINGS}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error


def read_samples(folder: Path, traces: bool = False) -> list[Line]:
    """The finished samples of a run, in the order they finished. Traces are large: on request."""
    path = folder / SAMPLES
    if not path.exists():
        raise UserError(f"{folder} is no run: it has no {SAMPLES}")
    # One that a kill has cut off is no object; the run that continues will drop it.
    lines = (row.content for row in read_rows(path) if isinstance(row.content, dict))
    return [line if traces else _without_trace(line) for line in lines]


def _without_trace(line: Line) -> Line:
    return {key: value for key, value in line.items() if key != "trace"}


class RunFolder:
    """A run that is being worked on."""

    def __init__(self, folder: Path, results: ResultFile, content: dict[str, Any]) -> None:
        self.folder = folder
        self.lines = read_samples(folder)
        self._results = results
        self._content = content

    @property
    def ids(self) -> Set[str]:
        return self._results.ids

    def begin_session(self, facts: dict[str, Any]) -> int:
        """Note who works on it now; returns the session's number."""
        self._content["sessions"].append(facts)
        write_json(self.folder / SETTINGS, self._content)
        return len(self._content["sessions"])

    def append(self, line: Line) -> None:
        self._results.append(line)
        self.lines.append(_without_trace(line))


@contextmanager
def open_run(folder: Path, settings: dict[str, Any]) -> Iterator[RunFolder]:
    """The run of these settings in this folder, begun or continued."""
    with ResultFile(folder / SAMPLES) as results:  # which only one process has
        content: dict[str, Any] = {"settings": settings, "sessions": []}
        if results.ids:  # settings under which nothing was finished bind nobody
            content = read_settings(folder)
            if changed := differences(content["settings"], settings):
                more = f" and {len(changed) - 3} more differences" if len(changed) > 3 else ""
                raise UserError(
                    f"{folder} was started with {', '.join(changed[:3])}{more}: give another "
                    "--out, or the same settings"
                )
        results.repair()
        write_json(folder / SETTINGS, content)
        yield RunFolder(folder, results, content)


def write_json(path: Path, content: Any) -> None:
    """Write a file whole or not at all: a kill in between leaves the old one."""
    draft = path.with_suffix(".part")
    try:
        draft.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
