"""What is trained on when: the schedule of a run, and problems that harden as they are mastered.

Looking things up in the prompt and calculating form fastest on short problems in one wording, with
every position asked for. Only what has formed is worth widening to blocks, and then to the canvas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rho_eos.decoding.params import DecodeParams
from rho_eos.llm import LLM
from rho_problems import TASKS
from rho_problems.problem import Problem
from training.batches import Batch, batches
from training.model import Size
from training.rows import Kind, Row, RowMaker

BLOCKS = (1, 4, 16, 32)
#: Programs take longest to learn.
TURNS = ("tiny-gsm", "tiny-math", "tiny-mbpp", "tiny-humaneval", "tiny-mbpp", "tiny-humaneval")
LONG = 0.3  # share of problems that have nearly as many steps as any
# Accuracy on what matters in next-token rows at which a task gets harder, and faster so.
MASTERED, EASY = 0.9, 0.97


@dataclass(frozen=True, slots=True)
class Phase:
    """What the schedule says at a moment of the run, from 0 (start) to 1 (end)."""

    least_difficulty: float  # share of each task's steps that is tried by now at least
    drills: float  # share of rows
    two_stream: float  # share of tokens, drills included
    blocks: np.ndarray  # how often each of BLOCKS
    rehearsals: int  # steps of decoding, at most, before a canvas is trained on
    oversure: float  # how often an error counts that decoding would have committed
    rate: float


def ramp(moment: float, moments: list[float], values: list[float]) -> float:
    return float(np.interp(moment, moments, values))


@dataclass(slots=True)
class Curriculum:
    """Per task, how hard its problems are by now, and how many of them come in plain wording."""

    difficulty: list[float] = field(default_factory=lambda: [0.3] * len(TASKS))
    plain: list[float] = field(default_factory=lambda: [0.9] * len(TASKS))

    def observe(self, accuracy: dict[str, float]) -> None:
        for index, name in enumerate(TASKS):
            share = accuracy.get(name, 0.0)
            step = 0.1 if share > EASY else 0.05 if share > MASTERED else 0.0
            self.difficulty[index] = min(1.0, self.difficulty[index] + step)
            self.plain[index] = max(0.1, self.plain[index] - step)


class Recipe:
    """How a model is trained: this one is that of `tiny`, others change parts of it."""

    start: str | None = None  # the embedded model whose weights it begins with
    turns: Sequence[str] = TURNS  # the tasks in the order in which they take turns
    config: ClassVar[Mapping[str, Any]] = {}  # fields of config.json beside those of `tiny`

    def curriculum(self) -> Curriculum:
        return Curriculum()

    def phase(self, moment: float, step: int) -> Phase:
        """The schedule, from the moment 0 to 1."""
        wide = [0.18, 0.28, 0.45]
        blocks = np.array(
            [
                ramp(moment, wide, [1.0, 0.5, 0.2]),
                ramp(moment, wide, [0.0, 0.4, 0.3]),
                ramp(moment, wide, [0.0, 0.3, 0.4]),
                ramp(moment, wide, [0.0, 0.3, 0.8]),
            ]
        )
        return Phase(
            least_difficulty=ramp(moment, [0.15, 0.3], [0.15, 1.0]),
            drills=ramp(moment, [0.0, 0.15, 0.25, 0.6, 0.601], [0.5, 0.5, 0.1, 0.05, 0.0]),
            two_stream=ramp(moment, [*wide, 0.72, 0.721], [0.9, 0.65, 0.3, 0.3, 0.0]),
            blocks=blocks / blocks.sum(),
            rehearsals=3 if moment > 0.72 else 0,
            oversure=ramp(moment, [0.55, 0.72, 0.9], [1.0, 10.0, 30.0]),
            rate=min(1.0, (step + 1) / 50) * ramp(moment, [0.5, 1.0], [1.0, 0.02]),
        )

    def canvas_row(self, maker: RowMaker, problem: Problem, task: int) -> Row:
        """What decoding shows."""
        return maker.canvas_row(*maker.encode(problem), task)

    def right(self, problem: Problem) -> Sequence[str]:
        """The answers that it is trained to give, all equally often."""
        return (problem.answer,)

    def answers(self, folder: Path, prompts: Sequence[str], length: int) -> list[str]:
        """What the checkpoint in a folder says, on canvases of this length."""
        params = DecodeParams(policy="fixed", initial_length=length)
        outputs = LLM(str(folder), device="cpu").generate([*prompts], params)
        return [output.text for output in outputs]


class Sibling(Recipe):
    """Begins with the weights of `tiny`, which has mastered everything, and changes one thing."""

    start = "tiny"
    turns = tuple(TASKS)

    def curriculum(self) -> Curriculum:
        return Curriculum([1.0] * len(TASKS), [0.1] * len(TASKS))


class ProblemStream:
    """Training problems without end, made into batches of rows."""

    def __init__(self, recipe: Recipe, maker: RowMaker, size: Size, seed: int) -> None:
        self.recipe, self.maker, self.size, self.seed = recipe, maker, size, seed
        self.drawn = 0
        self.curriculum = recipe.curriculum()

    def batches(self, phase: Phase) -> list[Batch]:
        """A dozen batches' worth of rows, sorted into batches by length."""
        rows: list[Row] = []
        total = two_stream = 0
        rng = self.maker.rng
        while total < 12 * self.size.tokens:
            if rng.random() < phase.drills:
                row = self.maker.lookup_row() if rng.random() < 0.5 else self.maker.drill_row()
            else:
                turns = self.recipe.turns
                task = list(TASKS).index(turns[self.drawn % len(turns)])
                problem = self._problem(task, phase.least_difficulty)
                if two_stream < phase.two_stream * total:
                    block = int(rng.choice(BLOCKS, p=phase.blocks))
                    answers = self.recipe.right(problem)
                    shown = replace(problem, answer=answers[int(rng.integers(len(answers)))])
                    row = self.maker.two_stream_row(*self.maker.encode(shown), block, task)
                else:
                    row = self.recipe.canvas_row(self.maker, problem, task)
            rows.append(row)
            total += len(row)
            two_stream += len(row) * (row.kind != Kind.CANVAS)
        return batches(rows, self.size.tokens, rng)

    def _problem(self, index: int, least_difficulty: float) -> Problem:
        task = list(TASKS.values())[index]
        share = max(self.curriculum.difficulty[index], least_difficulty) * self.size.hardest
        hardest = max(2, round(task.max_steps * share))
        rng = self.maker.rng
        least = hardest - hardest // 4 if rng.random() < LONG else 1
        steps = int(rng.integers(least, hardest + 1))
        plain = bool(rng.random() < self.curriculum.plain[index])
        self.drawn += 1
        return task.problem(self.seed * 10**9 + self.drawn, steps, "train", plain)
