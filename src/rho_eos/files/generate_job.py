"""`generate --input`: prompts of a file, each with parameters of its own, and their outputs.

Each line of the results says what it was made from: parameters, and hashes of prompt and model. A
file that was begun with others is never continued.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar

from rho_eos.base.errors import UserError
from rho_eos.base.outputs import Output
from rho_eos.decoding.params import check_samples
from rho_eos.decoding.schema import from_words, parameters
from rho_eos.files.file_job import Answer, FileJob
from rho_eos.files.jobs import Executor, Item
from rho_eos.files.jsonl import Line, ResultFile, differences
from rho_eos.files.rows import FileRow
from rho_eos.text.ask import Ask
from rho_eos.text.preparation import Preparer, samples
from rho_eos.views.announced import remark_on

#: A row may hold its parameters as one object. What else it holds is then the user's own.
PARAMETERS = "parameters"
PROMPT_KEYS = ("prompt", "messages", "prompt_token_ids")
#: What else a row may hold beside decoding parameters: the types that a value has, in words too.
TAKES = {
    "id": (str | int, "a text or a number"),
    "suffix": (str, "a text; token ids go into suffix_token_ids"),
    "suffix_token_ids": (list, "a list of token ids; a text goes into suffix"),
    "template": (str | list, "a text or a list of token ids"),
    "constraint": (dict, "an object with one of regex, choices and schema"),
}


@dataclass
class GenerateJob(FileJob):
    """A file of prompts; a row is as many items as it asks for samples."""

    marker: ClassVar[bytes] = b'{"object": "rho_eos.output", "id": "'

    defaults: Mapping[str, Any]  # decoding parameters; those of a row beat them
    raw: bool  # whether the chat template is left out
    model_hash: str
    preparer: Preparer  # which knows what the model can do
    executor: Callable[[], Executor]  # loads the model
    model: str = ""  # its name, for the remark on what an embedded model was never taught
    n: int = 1  # samples of each row that does not say
    commits: bool = False  # whether the step and probability of each token are written, too
    trace: Path | None = None  # the file for every denoising step, if there is one
    overwrite: bool = False  # whether that file is begun anew
    _traces: ResultFile | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Check the defaults of all rows: they must do for answers or, without a policy, for
        gaps."""
        check_samples(self.n)
        try:
            self.preparer.decide(Ask(params=self.defaults))
        except UserError as error:
            try:
                self.preparer.decide(Ask(params=self.defaults, template="___ ___"))
            except UserError:
                raise error from None

    def read(self, row: FileRow) -> list[Item]:
        """A row that asks for `n` samples is as many items, with #0, #1, … behind its id."""
        line = row.content
        # An empty cell of a table says nothing.
        line = {name: value for name, value in line.items() if not (row.is_words and value == "")}
        line = _with_parameters(line)
        prompt = {key: line.pop(key) for key in PROMPT_KEYS if line.get(key) is not None}
        given = {name: line.pop(name, None) for name in TAKES}
        for name, (kind, takes) in TAKES.items():
            if not isinstance(given[name], kind | None):
                raise UserError.of(name, given[name], takes)
        id, behind = given.pop("id"), given.pop("suffix_token_ids")
        if behind is not None and given["suffix"] is not None:
            raise UserError("suffix and suffix_token_ids do not go together")
        asked: dict[str, Any] = given if behind is None else {**given, "suffix": behind}
        own = dict(from_words(line) if row.is_words else line)
        count = own.pop("n", self.n)
        params = self.preparer.decide(Ask(None, own, **asked, defaults=self.defaults))
        asked |= {"prompt": prompt or None, "raw": self.raw}
        return [
            Item(id=id, ask={**asked, "params": params}, where=row.where)
            for id, params in samples(str(row.number if id is None else id), params, count)
        ]

    def origin(self, item: Item) -> Line:
        """What a line of the results says about where it comes from."""
        asked = {name: given for name, given in item.ask.items() if name != "params"}
        prompt = json.dumps(asked, sort_keys=True, ensure_ascii=False)
        code = item.ask["params"].code()
        return {
            "prompt_hash": blake2b(prompt.encode(), digest_size=16).hexdigest(),
            "model_hash": self.model_hash,
            "params": item.ask["params"].recorded(),
            **({"code": code} if code else {}),
        }

    def difference(self, item: Item, line: Line) -> str:
        asked = self.origin(item)
        if line.get("prompt_hash") != asked["prompt_hash"]:
            return "that was made from another prompt"
        if line.get("model_hash") != asked["model_hash"]:
            return "that another model gave, or this one in another precision"
        untraced = {"trace": None}  # which changes no answer
        begun, now = (
            {**_said(each, "params"), **untraced, **_said(each, "code")} for each in (line, asked)
        )
        changed = differences(begun, now)
        return f"that was made with {changed[0]}" if changed else ""

    def open(self, results: ResultFile, until_the_end: ExitStack) -> Answer:
        if self.trace is not None:
            self._traces = until_the_end.enter_context(open_trace(self.trace, self.overwrite))
            missing = len(results.ids - self._traces.ids)
            if missing:
                raise UserError(
                    f"{self.trace} lacks the steps of {missing} outputs that {results.path} holds "
                    "already: give another --output, or --overwrite"
                )
            # What is not finished will be traced again.
            self._traces.keep_only(lambda line: line["id"] in results.ids)
        executor = self.executor()
        return lambda items: executor.answers(self._remarked(items))

    def line(self, item: Item, answer: Output) -> Line:
        line = answer.as_dict(self.commits)
        if self._traces is not None:
            # Before the result: what has one is known to have its trace.
            self._traces.append(*trace_lines(answer))
            line.pop("trace", None)
        return {"object": "rho_eos.output", "id": line.pop("id"), **self.origin(item), **line}

    def _remarked(self, items: Iterator[Item]) -> Iterator[Item]:
        """Pass the items on, and remark on the first prompt that the embedded model was not
        taught."""
        said: set[str] = set()
        for item in items:
            beside = item.ask["suffix"] or item.ask["template"]
            remark_on(self.model, item.ask["prompt"], said, beside=beside)
            yield item


def open_trace(path: Path, overwrite: bool) -> ResultFile:
    """A file with a line for each step of each request."""
    return ResultFile(path, marker=b'{"object": "rho_eos.step", "id": "', overwrite=overwrite)


def trace_lines(output: Output) -> list[Line]:
    return [
        {"object": "rho_eos.step", "id": output.id, **record.as_dict()} for record in output.trace
    ]


def _said(line: Line, name: str) -> Line:
    """What a line says of how it was made; lines may come from anywhere."""
    return line[name] if isinstance(line.get(name), dict) else {}


def _with_parameters(line: Mapping[str, Any]) -> dict[str, Any]:
    """A row with its parameters beside its prompt, where it holds them as an object."""
    if PARAMETERS not in line:
        return dict(line)
    own = line[PARAMETERS]
    if not isinstance(own, dict):
        raise UserError.of(PARAMETERS, own, "an object of decoding parameters")
    known = {*PROMPT_KEYS, *TAKES, "n", *parameters()}
    return {**own, **{name: value for name, value in line.items() if name in known}}
