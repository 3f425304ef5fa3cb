"""Step records of requests, written to a file with one line a step."""

from pathlib import Path
from typing import Any

from rho_eos.base.outputs import Output
from rho_eos.files.jsonl import ResultFile

MARKER = b'{"object": "rho_eos.step", "id": "'


def open_trace(path: Path, overwrite: bool) -> ResultFile:
    """A file with one line per step: the request's id and the record."""
    return ResultFile(path, marker=MARKER, overwrite=overwrite)


def trace_lines(output: Output) -> list[dict[str, Any]]:
    return [
        {"object": "rho_eos.step", "id": output.id, **record.as_dict()} for record in output.trace
    ]
