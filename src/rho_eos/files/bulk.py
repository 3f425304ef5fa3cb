"""Many requests: from a file, through an engine that is kept fed, to a file.

Each line of the results says what it was made from: parameters, and hashes of prompt and model. A
file that was begun with others is never continued.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

from rho_eos.base.errors import UserError
from rho_eos.base.outputs import FinishReason, Output
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.schema import from_words
from rho_eos.engine.engine import Engine
from rho_eos.engine.request import Handle
from rho_eos.files.jsonl import Line, ResultFile
from rho_eos.files.rows import Row, is_words, read_rows
from rho_eos.files.traces import trace_lines
from rho_eos.text.ask import Ask, Request
from rho_eos.text.infilling import Given
from rho_eos.text.preparation import Preparer, decide, sample_ids, seeded

PROMPT_KEYS = ("prompt", "messages", "prompt_token_ids")
#: How the lines of results begin, by which a file of ours is known.
MARKER = b'{"object": "rho_eos.output", "id": "'
#: Parameters that change no answer.
_HARMLESS = ("trace",)
_LONGEST_COMPLAINT = 1000

Complain = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Item:
    """One request of a file, not tokenised yet."""

    where: str
    id: str
    prompt: dict[str, Any]
    params: DecodeParams
    suffix: Given | None = None
    template: Given | None = None
    schema: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Bulk:
    """A file of requests, and what holds for all of them."""

    path: Path
    defaults: Mapping[str, Any]  # decoding parameters; a line's own beat them
    raw: bool
    model_hash: str
    special: SpecialTokens  # whether the model can choose the length of a gap
    n: int = 1  # samples of each request that does not say
    commits: bool = False  # whether each token's commit is written down, too

    def items(self, complain: Complain) -> Iterator[Item]:
        """Every line that can be understood; what is wrong with the others is told."""
        words = is_words(self.path)
        seen: set[str] = set()
        for row in read_rows(self.path):
            try:
                samples = self._samples(row, words)
                if not seen.isdisjoint(item.id for item in samples):
                    raise UserError(f"the id {samples[0].id!r} was used by an earlier line")
            except Exception as error:
                complain(_complaint(row.where, error))
                continue
            seen.update(item.id for item in samples)
            yield from samples

    def count(self) -> int:
        """How many outputs the file asks for; a line that is no request counts as one."""
        bad: list[str] = []
        return sum(1 for _ in self.items(bad.append)) + len(bad)

    def made_from(self, item: Item) -> Line:
        """What a line of the results says about where it comes from."""
        gaps = item.suffix is not None or item.template is not None
        around: list[Any] = [item.suffix, item.template] if gaps else []
        around += [] if item.schema is None else [item.schema]
        asked = [item.prompt, self.raw, *around]
        prompt = json.dumps(asked, sort_keys=True, ensure_ascii=False)
        return {
            "prompt_hash": blake2b(prompt.encode(), digest_size=16).hexdigest(),
            "model_hash": self.model_hash,
            "params": item.params.recorded(),
        }

    def check_continues(self, results: ResultFile) -> None:
        """Answers to other questions, or of other settings, are no answers to these."""
        for item in self.items(lambda _: None):
            if item.id not in results.ids:
                continue
            begun = results.line(item.id)
            difference = _difference(begun, json.loads(json.dumps(self.made_from(item))))
            if difference:
                raise UserError(
                    f"{results.path} holds an answer to {item.id!r} {difference}: give another "
                    "--output, the same input and settings, or --overwrite"
                )

    def requests(
        self,
        preparer: Preparer,
        skip: set[str],
        begun: dict[str, Item],
        complain: Complain,
    ) -> Iterator[Request]:
        """Those that are not done yet; each is noted in `begun`."""
        for item in self.items(complain):
            if item.id in skip:
                continue
            try:
                [request] = preparer.prepare(
                    Ask(
                        item.prompt or None,
                        item.params,
                        id=item.id,
                        raw=self.raw,
                        suffix=item.suffix,
                        template=item.template,
                        schema=item.schema,
                    )
                )
            except Exception as error:
                complain(_complaint(item.where, error))
                continue
            begun[item.id] = item
            yield request

    def write(
        self,
        outputs: Iterator[Output],
        begun: dict[str, Item],
        results: ResultFile,
        traces: ResultFile | None,
        done: Callable[[Output], None],
        complain: Complain,
    ) -> None:
        """Write each output the moment it is finished. A failed one is told; it can run again."""
        for output in outputs:
            item = begun.pop(output.id)
            if output.finish_reason is FinishReason.ERROR:
                complain(f"{item.where}: request {output.id}: {output.error}")
                continue
            line = output.as_dict(self.commits)
            if traces is not None:
                # Before the result: what has one is known to have its trace.
                traces.append(*trace_lines(output))
                line.pop("trace", None)
            head = {"object": "rho_eos.output", "id": line.pop("id"), **self.made_from(item)}
            results.append(head | line)
            done(output)

    def _samples(self, row: Row, words: bool) -> list[Item]:
        """A line that asks for `n` samples is as many requests, with #0, #1, … behind its id."""
        line = row.content
        if isinstance(line, UserError):
            raise line
        if not isinstance(line, dict):
            raise UserError("not a JSON object")
        # An empty cell of a table says nothing.
        line = {name: value for name, value in line.items() if not (words and value == "")}
        id = line.pop("id", None)
        if not isinstance(id, str | int | None):
            raise UserError(f"id is {id!r}, but takes a text or a number")
        prompt = {key: line.pop(key) for key in PROMPT_KEYS if line.get(key) is not None}
        suffix, template = _around(line)
        schema = line.pop("schema", None)
        own = dict(from_words(line) if words else line)
        count = own.pop("n", self.n)
        ask = Ask(
            None, own, suffix=suffix, template=template, schema=schema, defaults=self.defaults
        )
        each = seeded(decide(ask, self.special), count)
        ids = sample_ids(str(row.number if id is None else id), count)
        return [
            Item(row.where, id, prompt, params, suffix, template, schema)
            for id, params in zip(ids, each, strict=True)
        ]


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


def decode_all(engine: Engine, requests: Iterator[Request]) -> Iterator[Output]:
    """Keep the engine fed; outputs come as they finish, those that failed among them.

    Leaving early cancels what is in flight.
    """
    backlog = 2 * engine.scheduler.max_rows
    running: list[Handle] = []
    try:
        while True:
            running += [
                engine.submit(request) for request in islice(requests, backlog - len(running))
            ]
            if not running:
                return
            engine.step()
            done = [handle for handle in running if handle.done]
            running = [handle for handle in running if not handle.done]
            for handle in done:
                assert handle.output is not None
                yield handle.output
    finally:
        for handle in running:
            engine.cancel(handle)


def _difference(begun: Line, asked: Line) -> str:
    """In words, the first way in which two origins differ; nothing if they do not."""
    if begun.get("prompt_hash") != asked["prompt_hash"]:
        return "that was made from another prompt"
    if begun.get("model_hash") != asked["model_hash"]:
        return "that another model gave, or this one in another precision"
    old, new = begun.get("params"), asked["params"]
    old = old if isinstance(old, dict) else {}
    for name in {**old, **new}:
        if name not in _HARMLESS and old.get(name) != new.get(name):
            return f"that was made with {name} {old.get(name)!r}, not {new.get(name)!r}"
    return ""


def _complaint(where: str, error: Exception) -> str:
    """One line, whatever a bad line of input led to."""
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    text = " ".join(text.split())
    text = text if len(text) <= _LONGEST_COMPLAINT else text[:_LONGEST_COMPLAINT] + "…"
    return text if text.startswith(where) else f"{where}: {text}"
