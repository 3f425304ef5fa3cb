"""A task described in a YAML file: data, a prompt, and a grader by name; no code.

    data: words.jsonl                  # JSON Lines, CSV or Parquet, beside the file
    prompt: Spell $word backwards.
    reference: answer                  # the field that holds the right answer
    grader: exact                      # or with options: {name: number, marker: "Answer:"}

All rows are checked when they are loaded, so that a mistake is found before a model is.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from rho_eos.base.errors import UserError
from rho_eos.base.fingerprint import fingerprint
from rho_eos.base.registry import NAME
from rho_eos.base.settings import Settings
from rho_eos.decoding.schema import from_words
from rho_eos.evals.files import read_yaml
from rho_eos.evals.graders import make_grader
from rho_eos.evals.task import Grade, Sample, Task
from rho_eos.evals.tasks.source import Source, fill


class Description(Settings):
    """What the file says. Templates hold `$field` for a field of the sample."""

    name: str = ""  # none: that of the file
    data: str = Field(min_length=1)
    id: str | None = None
    prompt: str = ""  # it may be missing where there is a template
    answer_prefix: str = ""
    suffix: str | None = None
    template: str | None = None
    params: Mapping[str, Any] = Field(default_factory=dict)
    reference: str = Field(min_length=1)
    gold: str | None = None
    grader: Any


class FileTask(Task):
    """The task that a description in a file makes."""

    def __init__(self, file: Path, said: Description) -> None:
        self.file, self.said = file, said
        self.name = said.name or file.stem
        if not NAME.fullmatch(self.name):
            raise UserError(f"name is {self.name!r}, but takes letters, digits, . _ -")
        if not said.prompt and said.template is None:
            raise UserError("prompt is missing, and there is no template either")
        self.grader = make_grader(said.grader)
        self.runs_code = self.grader.runs_code
        self.answer_prefix = said.answer_prefix
        self.data = file.parent / said.data

    def load(self, path: Path | None = None, limit: int | None = None) -> list[Sample]:
        if path is not None:
            raise UserError(f"{self.name} reads {self.data}, as its file says, but got {path}")
        try:
            return Source({}, self._id, check=self._check).load(self.data, limit)
        except UserError as error:
            raise UserError(f"{self.file}: {error}") from error

    def prompt(self, sample: Sample) -> str:
        return fill(self.said.prompt, **texts(sample.data))

    def ask(self, sample: Sample) -> dict[str, Any]:
        fields, said = texts(sample.data), self.said
        asked = super().ask(sample) if said.prompt else {}
        if said.suffix is not None:  # then the prompt is the text before the gap
            asked = {"prompt": self.prompt(sample), "suffix": fill(said.suffix, **fields)}
        if said.template is not None:
            asked["template"] = fill(said.template, **fields)
        own = {
            name: fill(value, **fields) if isinstance(value, str) else value
            for name, value in said.params.items()
        }
        return {**asked, "params": from_words(own)} if own else asked

    def grade(self, sample: Sample, text: str) -> Grade:
        fields = texts(sample.data)
        return self.grader.grade(text, fields[self.said.reference], fields)

    def gold(self, sample: Sample) -> str:
        fields = texts(sample.data)
        if self.said.gold is not None:
            return fill(self.said.gold, **fields)
        return self.grader.gold(fields[self.said.reference])

    def identity(self) -> dict[str, Any]:
        said = self.said.model_dump(exclude={"name", "data", "grader"})
        said["params"] = {f"{name} of samples": value for name, value in self.said.params.items()}
        options = {f"grader {key}": value for key, value in self.grader.model_dump().items()}
        return {**said, "grader": self.grader.name, **options, "data": fingerprint([self.data])}

    def _id(self, index: int, row: Mapping[str, Any]) -> str:
        return f"{self.name}/{index if self.said.id is None else as_text(row[self.said.id])}"

    def _check(self, row: Mapping[str, Any]) -> None:
        """All that could go wrong with a row later goes wrong before a model is loaded."""
        fields = texts(row)
        for key in ("id", "reference"):
            field = getattr(self.said, key)
            if field is not None and field not in fields:
                raise UserError(f"{key} is {field!r}, but the fields are {', '.join(fields)}")
        for key in ("prompt", "gold", "suffix", "template"):
            try:
                fill(getattr(self.said, key) or "", **fields)
            except UserError as error:
                raise UserError(f"{key}: {error}") from None
        self.ask(Sample("", row))
        self.grader.check(fields[self.said.reference], fields)


def read_task_file(path: Path) -> FileTask:
    """The task that a file describes; every complaint names the file."""
    content = read_yaml(path)
    if not isinstance(content, dict):
        known = ", ".join(Description.model_fields)
        raise UserError(f"{path} takes a mapping with the keys {known}")
    try:
        return FileTask(path, Description.from_mapping(content))
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def texts(row: Mapping[str, Any]) -> dict[str, str]:
    return {field: as_text(value) for field, value in row.items()}


def as_text(value: Any) -> str:
    """As a prompt shows it: a list is lines, nothing is nothing, an object is JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return "\n".join(map(as_text, value))
    if isinstance(value, Mapping | bool):
        return json.dumps(value, ensure_ascii=False, default=str)
    return "" if value is None else str(value)
