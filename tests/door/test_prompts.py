"""What we suggest to try on `tiny` is answered right, and what it cannot answer is said."""

import random
from pathlib import Path

import pytest

from rho_eos import LLM
from rho_eos.embedded.scope import EXAMPLE, NOTE, TURNS, note_on
from rho_problems import TASKS
from rho_problems.forms import looks_known
from tests.door.documented import Documented, documented
from tests.door.solutions import grade, number_asked_for
from tests.evals.command import Command

#: Where a new user looks first, one of each kind; the collector must not overlook them.
FIRST_SEEN = {
    "README.md",
    "docs/guides/first-answer.md",
    "examples/policy.py",
    "examples/tour.ipynb",
    "src/rho_eos/cli/generate.py",
    "src/rho_eos/llm.py",
}
FOREIGN = (
    "Count to three.",
    "What is (3 + 4) * 2?",
    "Write a Python function that reverses a string.",
    "Name three things: 1) a colour 2) a fruit 3) a city",
    "Mia has 800 plums. 1) buys 6. How many are there now?",
    "Mia has 8 plums. 1) paints 6. How many are there now?",
    "Mia has 8 plums. 1) buys 6.",
    "def f(x):\n    return",
)


def test_every_documented_prompt_is_answered_right(tiny: LLM) -> None:
    found = documented()
    assert {each.where for each in found} >= FIRST_SEEN
    found += [Documented("the note on foreign prompts", EXAMPLE)]
    prompts = list(dict.fromkeys(each.prompt for each in found))
    answers = dict(zip(prompts, tiny.generate(prompts), strict=True))
    wrong = [
        f"{where}: {prompt!r} gives {answers[prompt].text!r}"
        for where, prompt in found
        if not grade(prompt, answers[prompt].text).correct
    ]
    assert not wrong, "\n".join(wrong)


def test_the_solutions_are_those_of_the_generators() -> None:
    """The oracle of the test above agrees with the answers the problems were made with."""
    for name in ("tiny-gsm", "tiny-math"):
        for seed in range(50):
            problem = TASKS[name].problem(seed)
            assert problem.answer.endswith(f"#### {number_asked_for(problem.prompt)}")


@pytest.mark.parametrize("name", TASKS)
def test_its_own_problems_are_known(name: str) -> None:
    for seed in random.Random(0).sample(range(100_000), 100):
        prompt = TASKS[name].problem(seed, split="train").prompt
        assert looks_known(prompt), prompt


@pytest.mark.parametrize("prompt", FOREIGN)
def test_others_are_not(prompt: str) -> None:
    assert note_on("tiny", prompt) == NOTE
    assert note_on("tiny", [{"role": "user", "content": prompt}]) == NOTE
    assert note_on("a-folder", prompt) is None
    assert note_on("tiny", {"prompt_token_ids": [7, 8]}) is None


def test_commands_say_it_once_where_it_is_so(command: Command, tmp_path: Path) -> None:
    short = ("--max-new-tokens", "16", "--initial-length", "16")
    source = tmp_path / "in.txt"
    file = ("generate", "-i", source, "-o", tmp_path / "out.jsonl", *short)
    source.write_text(f"{EXAMPLE}\nCount to three.\nCount to four.\n")
    strange = [file, *((word, "Count to three.", *short) for word in ("generate", "watch"))]
    for words in strange:
        assert command(*words).err.count(NOTE) == 1
    # Nothing is left to ask of the file.
    for words in (file, *((word, EXAMPLE, *short) for word in ("generate", "watch"))):
        done = command(*words)
        assert done.code == 0 and NOTE not in done.err


def test_a_conversation_is_not_what_it_was_taught(command: Command) -> None:
    lines = [EXAMPLE, EXAMPLE, "Count to three.", "Count to four.", "/reset", EXAMPLE]
    said = command("chat", "--max-new-tokens", "16", stdin="\n".join(lines)).err
    assert said.count(TURNS) == said.count(NOTE) == 1


def test_totals_beyond_what_the_models_know_are_remarked_on() -> None:
    """Every number is small, and the total is not: 30 + 9 + 9, or 3 - 5."""
    beyond = (
        "Mia has 30 plums. 1) buys 9. 2) finds 9. How many are there now?",
        "Mia has 3 plums. 1) eats 5. How many are there now?",
        "Mia has 20 plums. 1) doubles them. 2) doubles them. How many are there now?",
        "Compute\n1) (20 + 20)\n2) + (3 * 2)",
    )
    within = (
        "Mia has 30 plums. 1) buys 9. 2) eats 9. 3) finds 9. How many are there now?",
        "Mia has 20 plums. 1) doubles them. How many are there now?",
        "Compute\n1) (20 + 20)\n2) - (3 * 2)",
    )
    assert [note_on("tiny", prompt) for prompt in beyond] == [NOTE] * len(beyond)
    assert [note_on("tiny", prompt) for prompt in within] == [None] * len(within)
