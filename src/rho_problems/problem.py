"""What a problem of the embedded models is, and which they may never see in training.

The hash of a problem's *answer* decides whether it belongs to the test split. A generator redraws
until the split is the one asked for, so no answer of a test problem has been shown in training,
whatever the seeds and however the problem is worded. (A shorter form of it may have been: results
are few, and stories that differ in their verbs have the same equations.)
"""

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Literal

Split = Literal["train", "test"]
TEST_SHARE = 16  # one answer in so many is held out


@dataclass(frozen=True, slots=True)
class Problem:
    """One question: `answer` is the text that `tiny` is trained to give.

    `shorter` holds the answers that `terse` is trained to give where the whole one does not fit,
    the fullest first. For a number these are the equations alone and the result alone; for a
    program, the code without comments and then with fewer and fewer of the steps.
    """

    id: str
    prompt: str
    answer: str
    meta: dict[str, Any] = field(default_factory=dict)
    shorter: tuple[str, ...] = ()


def split_of(task: str, answer: str) -> Split:
    """The split that an answer belongs to."""
    digest = blake2b(f"{task}\n{answer}".encode(), digest_size=8).digest()
    return "test" if int.from_bytes(digest, "big") % TEST_SHARE == 0 else "train"


class PlainRandom(random.Random):
    """Always takes the first of several wordings, and never what is rare; numbers stay random.

    A model learns to look things up faster from problems that are all worded alike.
    """

    def choice(self, options: Any) -> Any:
        worded = isinstance(options[0], str) and len(options[0]) > 1
        return options[0] if worded else super().choice(options)

    def getrandbits(self, bits: int) -> int:
        # Without this method, integers would be drawn with `random`, which never varies here.
        return super().getrandbits(bits)

    def random(self) -> float:
        return 0.999


class Task(ABC):
    """A generator of problems with a seed and a difficulty (the number of steps)."""

    name: str
    max_steps: int

    @abstractmethod
    def draw(self, rng: random.Random, steps: int) -> Problem:
        """A problem of so many steps, from either split."""

    def problem(
        self, seed: int, difficulty: int | None = None, split: Split = "test", plain: bool = False
    ) -> Problem:
        """The problem of this seed; a difficulty of None draws one, so that lengths spread."""
        if difficulty is not None and not 1 <= difficulty <= self.max_steps:
            raise ValueError(
                f"difficulty of {self.name} is 1 to {self.max_steps} steps, got {difficulty}"
            )
        source = PlainRandom if plain else random.Random
        rng = source(f"{self.name}/{split}/{seed}")
        while True:
            drawn = self.draw(rng, difficulty or self.draw_steps(rng))
            if split_of(self.name, drawn.answer) == split:
                return replace(drawn, id=f"{self.name}/{split}/{seed}")

    def draw_steps(self, rng: random.Random) -> int:
        """Short problems somewhat more often than long ones."""
        if rng.random() < 0.3:
            return rng.randint(1, max(1, self.max_steps // 3))
        return rng.randint(1, self.max_steps)
