"""Files of JSON Lines, as tests write and read them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write_lines(path: Path, lines: Iterable[dict[str, Any] | str]) -> Path:
    """A line for each object; a text stands there as it is."""
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def by_id(path: Path) -> dict[str, dict[str, Any]]:
    """The lines of a file of results, by their ids."""
    return {line["id"]: line for line in read_lines(path)}
