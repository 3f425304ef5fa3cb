"""`generate --input`: prompts of a file, each with parameters of its own, and their outputs.

Each line of the results says what it was made from: parameters, and hashes of prompt and model. A
file that was begun with others is never continued.
"""

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar

from rho_eos.base.errors import UserError
from rho_eos.base.outputs import Output
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.params import DecodeParams, merged, seeded
from rho_eos.decoding.registry import find_policy
from rho_eos.decoding.schema import from_words
from rho_eos.files.file_job import FileJob
from rho_eos.files.jobs import Answers, Executor
from rho_eos.files.jsonl import Line, ResultFile
from rho_eos.files.rows import FileRow
from rho_eos.files.traces import OBJECT, open_trace
from rho_eos.text.infilling import Given, default_policy, stands_before_text
from rho_eos.views.announced import remark_on

PROMPT_KEYS = ("prompt", "messages", "prompt_token_ids")
#: Parameters that change no answer.
_HARMLESS = ("trace",)


@dataclass(frozen=True, slots=True)
class PromptItem:
    """One sample that a row asks for, not tokenised yet. `ask` is what `Preparer` takes."""

    where: str
    id: str
    ask: dict[str, Any]


@dataclass(slots=True)
class GenerateJob(FileJob[PromptItem, Output]):
    """What holds for all rows of a file.

    Attributes:
        defaults: Decoding parameters; those of a row beat them.
        raw: Whether the chat template is left out.
        model_hash: Which model answers.
        special: The model's tokens, which say whether it can choose the length of a gap.
        executor: Loads the model.
        model: Its name, for the remark on prompts that an embedded model was never taught.
        n: Samples of each row that does not say.
        commits: Whether the step and probability of each token are written, too.
        trace: The file for every denoising step, if there is one.
        overwrite: Whether that file is begun anew, too.
    """

    marker: ClassVar[bytes] = b'{"object": "rho_eos.output", "id": "'

    defaults: Mapping[str, Any]
    raw: bool
    model_hash: str
    special: SpecialTokens
    executor: Callable[[], Executor]
    model: str = ""
    n: int = 1
    commits: bool = False
    trace: Path | None = None
    overwrite: bool = False
    _traces: ResultFile | None = field(default=None, init=False)

    def read(self, row: FileRow) -> list[PromptItem]:
        """A row that asks for `n` samples is as many items, with #0, #1, … behind its id."""
        line = row.content
        # An empty cell of a table says nothing.
        line = {name: value for name, value in line.items() if not (row.is_words and value == "")}
        id = line.pop("id", None)
        if not isinstance(id, str | int | None):
            raise UserError(f"id is {id!r}, but takes a text or a number")
        prompt = {key: line.pop(key) for key in PROMPT_KEYS if line.get(key) is not None}
        suffix, template = _around(line)
        own = dict(from_words(line) if row.is_words else line)
        count = own.pop("n", self.n)
        given = merged(self.defaults, own)
        if stands_before_text(suffix, template) and given.get("policy") is None:
            given = self._of_a_gap(own)
        each = seeded(DecodeParams.from_mapping(given), count)
        asked = {"prompt": prompt or None, "suffix": suffix, "template": template, "raw": self.raw}
        ids = sample_ids(str(row.number if id is None else id), count)
        return [
            PromptItem(row.where, id, {**asked, "params": params})
            for id, params in zip(ids, each, strict=True)
        ]

    def origin(self, item: PromptItem) -> Line:
        """What a line of the results says about where it comes from."""
        around = [item.ask["suffix"], item.ask["template"]]
        asked = [item.ask["prompt"] or {}, self.raw, *(around if around != [None, None] else [])]
        prompt = json.dumps(asked, sort_keys=True, ensure_ascii=False)
        return {
            "prompt_hash": blake2b(prompt.encode(), digest_size=16).hexdigest(),
            "model_hash": self.model_hash,
            "params": item.ask["params"].recorded(),
        }

    def difference(self, item: PromptItem, line: Line) -> str:
        asked = json.loads(json.dumps(self.origin(item)))
        if line.get("prompt_hash") != asked["prompt_hash"]:
            return "that was made from another prompt"
        if line.get("model_hash") != asked["model_hash"]:
            return "that another model gave, or this one in another precision"
        old, new = line.get("params"), asked["params"]
        old = old if isinstance(old, dict) else {}
        for name in {**old, **new}:
            if name not in _HARMLESS and old.get(name) != new.get(name):
                return f"that was made with {name} {old.get(name)!r}, not {new.get(name)!r}"
        return ""

    @contextmanager
    def opened(self, results: ResultFile) -> Iterator[Answers[PromptItem, Output | Exception]]:
        with nullcontext() if self.trace is None else self._open_trace(results) as self._traces:
            executor = self.executor()

            def answers(
                items: Iterator[PromptItem],
            ) -> Generator[tuple[str, Output | Exception], None, None]:
                yield from executor.answers(self._remarked(items))

            yield answers

    def line(self, item: PromptItem, answer: Output) -> Line:
        line = answer.as_dict(self.commits)
        return {"object": "rho_eos.output", "id": line.pop("id"), **self.origin(item), **line}

    def write(self, results: ResultFile, line: Line) -> None:
        if self._traces is not None:
            # Before the result: what has one is known to have its trace.
            steps = line.pop("trace", [])
            self._traces.append(*({"object": OBJECT, "id": line["id"], **step} for step in steps))
        results.append(line)

    def tokens(self, line: Line) -> int:
        return len(line["token_ids"])

    def _remarked(self, items: Iterator[PromptItem]) -> Iterator[PromptItem]:
        """The same items. Of the first that the embedded model was never taught, it is said."""
        said: set[str] = set()
        for item in items:
            beside = item.ask["suffix"] or item.ask["template"]
            remark_on(self.model, item.ask["prompt"], said, beside=beside)
            yield item

    def _open_trace(self, results: ResultFile) -> ResultFile:
        """The traces of what is finished. What is not will be traced again."""
        assert self.trace is not None
        traces = open_trace(self.trace, self.overwrite)
        missing = len(results.ids - traces.ids)
        if missing:
            traces.close()
            raise UserError(
                f"{self.trace} lacks the steps of {missing} outputs that {results.path} holds "
                "already: give another --output, or --overwrite"
            )
        traces.keep_only(lambda line: line["id"] in results.ids)
        return traces

    def _of_a_gap(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters of a row with gaps where no policy is named: of the defaults, those that the
        policy of gaps has. An initial length of answers is none of gaps."""
        policy = default_policy({}, self.special)["policy"]
        known = find_policy(policy).Params.model_fields.keys() - {"initial_length"}
        usual = {name: value for name, value in self.defaults.items() if name in known}
        return default_policy({**usual, **own}, self.special)


def sample_ids(id: str, n: int) -> Sequence[str]:
    """The ids of n samples of one request; a single one goes by the request's own."""
    return [id] if n == 1 else [f"{id}#{sample}" for sample in range(n)]


def _around(line: dict[str, Any]) -> tuple[Given | None, Given | None]:
    """Take suffix and template out of a line; null means "not given"."""
    text, ids, template = (
        line.pop(key, None) for key in ("suffix", "suffix_token_ids", "template")
    )
    if text is not None and ids is not None:
        raise UserError("suffix and suffix_token_ids do not go together")
    if text is not None and not isinstance(text, str):
        raise UserError("suffix takes a text; token ids go into suffix_token_ids")
    if ids is not None and not isinstance(ids, list):
        raise UserError("suffix_token_ids takes a list of token ids; a text goes into suffix")
    if template is not None and not isinstance(template, str | list):
        raise UserError("template takes a text or a list of token ids")
    return (ids if text is None else text), template
