"""What a probe asks of each prompt, and one line of numbers for it.

On an empty canvas of each length one forward says how long the text will be (F, docs/method.md §3).
Then the text is written once on a long canvas, which shows how long it really is. With a task, it
is also written in other orders, and graded.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rho_eos.base.errors import UserError
from rho_eos.base.outputs import FinishReason, Foretold, Output
from rho_eos.decoding.params import DecodeParams
from rho_eos.engine.request import Detail, StepEvent
from rho_eos.evals import find_task
from rho_eos.evals.probing.settings import Probe
from rho_eos.evals.task import Sample, Task
from rho_eos.files.rows import read_rows
from rho_eos.llm import LLM
from rho_eos.text.ask import Ask

BEGINNING = 32  # tokens of which it is asked whether a longer canvas confirms them
ORDERS: dict[str, int | None] = {"blocks of 32": 32, "blocks of 8": 8, "any order": None}
#: For a model whose owner gives neither a task nor prompts. Their answers differ in length.
PROMPTS = (
    "What is the capital of Norway?",
    "Name three primary colours.",
    "Is 91 a prime number? Answer with yes or no, and say why in one sentence.",
    "A train leaves at 9:40 and arrives at 12:05. How long is the journey?",
    "Write a haiku about the first snow.",
    "Explain in two sentences why the sky is blue.",
    "Give me a recipe for pancakes.",
    "Write a Python function that says whether a string is a palindrome.",
    "Write a Python function that merges two sorted lists, with a docstring.",
    "Translate into French: The meeting has been moved to Thursday.",
    "What is the difference between a virus and a bacterium?",
    "Lisa has 24 apples. She gives a third to Tom and eats two. How many are left? Show each step.",
    "List the planets of the solar system with one fact about each.",
    "Summarise the story of Romeo and Juliet in one paragraph.",
    "Write a short, polite email that declines an invitation.",
    "Solve 3x + 7 = 2x - 5 and show each step.",
    "Describe how a bill becomes a law, in five numbered steps.",
    "Write an essay of four paragraphs on whether homework should be abolished.",
    "Which weighs more, a kilogram of feathers or a kilogram of iron?",
    "Tell me a story about a lighthouse keeper who finds a message in a bottle.",
)


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt as it is asked, and what grades its answer, if anything does."""

    id: str
    ask: Mapping[str, Any] = field(repr=False)
    task: Task | None = None
    sample: Sample | None = None


def questions(probe: Probe, data: Mapping[str, Path]) -> list[Question]:
    """The prompts of a probe."""
    if probe.tasks and probe.prompts is not None:
        raise UserError("prompts come from a file or from tasks, not from both")
    found = []
    for name in probe.tasks:
        task = find_task(name)
        samples = task.load(data.get(name), probe.limit)[: probe.limit]
        found += [Question(each.id, task.ask(each), task, each) for each in samples]
    if found:
        return found
    if probe.prompts is None:
        return [Question(str(at), {"prompt": p}) for at, p in enumerate(PROMPTS[: probe.limit])]
    for row in read_rows(Path(probe.prompts)):
        if isinstance(row.content, UserError):
            raise UserError(f"{row.where}: {row.content}")
        if not isinstance(row.content, Mapping):
            raise UserError(f"{row.where}: a line is an object that holds a prompt")
        keys = ("prompt", "messages", "prompt_token_ids")
        prompt = {key: row.content[key] for key in keys if row.content.get(key) is not None}
        found.append(Question(str(row.content.get("id", row.number)), {"prompt": prompt}))
        if len(found) == probe.limit:
            break
    return found


@dataclass(frozen=True)
class Prober:
    """Measures one model."""

    llm: LLM
    probe: Probe

    def check(self) -> None:
        """Refuse a model whose lengths cannot be read, or that has no room for a canvas."""
        if self.llm.checkpoint.blocks is not None:
            raise UserError(
                "a block diffusion model sees nothing behind the block that it is writing, so its "
                "first forward says nothing of a length"
            )
        if len(self.canvases) < 2:
            raise UserError(
                f"canvases takes two lengths at least that fit into half of the context, "
                f"{self.llm.context_length // 2}"
            )

    @property
    def canvases(self) -> list[int]:
        """Those that fit the model's context beside a prompt of some length."""
        longest = self.llm.context_length // 2
        return sorted({length for length in self.probe.canvases if length <= longest})

    @property
    def longest(self) -> int:
        return min(self.probe.write, self.llm.context_length // 2)

    def measure(self, question: Question) -> dict[str, Any]:
        """The line of one prompt."""
        looks = [self._look(question, length) for length in self.canvases]
        wanted = ORDERS if question.task is not None else dict([*ORDERS.items()][:1])
        texts = {name: self._written(question, block) for name, block in wanted.items()}
        first, told = texts[next(iter(texts))]
        line: dict[str, Any] = {"id": question.id, "looks": looks, "written": _told(told)}
        line["tokens"] = len(first.token_ids)
        line["ended"] = first.finish_reason is FinishReason.STOP
        if question.task is not None and question.sample is not None:
            line["right"] = {
                name: question.task.grade(question.sample, output.text).correct
                for name, (output, _) in texts.items()
            }
        return line

    def _look(self, question: Question, length: int) -> dict[str, Any]:
        """What the first forward on so many MASKs says, and how it would begin the text."""
        events = self._events(question, length)
        with closing(events):
            event = next(events)
        guess = [*event.token_ids, *event.draft_ids][:BEGINNING]
        return {"length": length, **_told(event.record.foretold), "guess": guess}

    def _written(self, question: Question, block: int | None) -> tuple[Output, Foretold | None]:
        """The text, and what its first forward said."""
        told: list[Foretold | None] = []
        for event in self._events(question, self.longest, block):
            told.append(event.record.foretold)
        assert event.output is not None
        return event.output, told[0]

    def _events(
        self, question: Question, length: int, block: int | None = 32
    ) -> Generator[StepEvent, None, None]:
        params = DecodeParams(
            policy="fixed",
            initial_length=length,
            max_new_tokens=length,
            block_length=block,
            temperature=self.probe.temperature,
        )
        [request] = self.llm.preparer.prepare(
            Ask(id=question.id, **{**question.ask, "params": params})
        )
        return self.llm.engine.follow(self.llm.engine.submit(request, Detail.STEPS))

    def curve(self, question: Question) -> np.ndarray:
        """F on the canvas that texts are written on: what two ways to compute are compared by."""
        return np.array(self._look(question, self.longest)["curve"])


def _told(foretold: Foretold | None) -> dict[str, Any]:
    assert foretold is not None
    quantiles: Sequence[int | None] = foretold.quantiles
    return {
        "expected": foretold.expected,
        "quantiles": list(quantiles),
        "curve": list(foretold.curve),
    }
