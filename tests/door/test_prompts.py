"""What we suggest to try on `tiny` is answered right, and what it cannot answer is said."""

import io
import json
import random
from pathlib import Path

import pytest

from rho_eos import LLM
from rho_eos.embedded.scope import EXAMPLE, NOTE, TURNS, looks_known, note_on
from rho_eos.embedded.tasks import TASKS
from tests.door.documented import Documented, documented
from tests.door.solutions import grade, number_asked_for
from tests.evals.command import Command

#: Where a new user looks first; the collector must not overlook one of them.
FIRST_SEEN = {
    "README.md",
    "docs/guides/first-answer.md",
    "docs/serving.md",
    "docs/policies.md",
    "examples/policy.py",
    "examples/tour.ipynb",
    "src/rho_eos/__init__.py",
    "src/rho_eos/cli/__init__.py",
    "src/rho_eos/cli/generate.py",
    "src/rho_eos/cli/watch.py",
    "src/rho_eos/llm.py",
}
FOREIGN = (
    "Count to three.",
    "What is 3 + 4?",
    "What is (3 + 4) * 2?",
    "Write a Python function that reverses a string.",
    "Name three things: 1) a colour 2) a fruit 3) a city",
    "Mia has 800 plums. 1) buys 6. How many are there now?",
    "Mia has 8 plums. 1) buys 6. 3) eats 5. How many are there now?",
    "Mia has 8 plums. 1) paints 6. How many are there now?",
    "Mia has 8 plums. 1) buys 6.",
    "def f(x):\n    return",
)


@pytest.fixture(scope="module")
def tiny() -> LLM:
    return LLM("tiny")


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
    seeds = random.Random(0).sample(range(100_000), 100)
    unknown = [
        prompt
        for seed in seeds
        if not looks_known(prompt := TASKS[name].problem(seed, split="train").prompt)
    ]
    assert unknown == []


@pytest.mark.parametrize("prompt", FOREIGN)
def test_others_are_not(prompt: str) -> None:
    assert note_on("tiny", prompt) == NOTE
    assert note_on("tiny", [{"role": "user", "content": prompt}]) == NOTE
    assert note_on("a-folder", prompt) is None
    assert note_on("tiny", {"prompt_token_ids": [7, 8]}) is None


def test_of_a_text_with_gaps_the_beginning_counts() -> None:
    """Where lines of a program are wanted, others stand behind the problem."""
    problem = TASKS["tiny-mbpp"].problem(5)
    begun, rest = problem.answer[:40], problem.answer[50:]
    document = f"{problem.prompt}\n{begun}"
    assert note_on("tiny", document) == NOTE  # as a message
    assert note_on("tiny", document, rest) is None
    assert note_on("tiny", {"prompt": document}, rest) is None
    assert note_on("tiny", None, f"{document}___{rest}") is None
    assert note_on("tiny", None, f"{begun}___{rest}") == NOTE
    assert note_on("tiny", "Count to three.", "four") == NOTE
    assert note_on("tiny", {"prompt_token_ids": [7, 8]}, rest) is None


def test_commands_say_it_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command(monkeypatch, capsys)
    short = ("--max-new-tokens", "32", "--initial-length", "16")
    for words in (("generate", "--json"), ("watch", "--delay", "0")):
        strange = command(*words, "Count to three.", *short)
        assert strange.code == 0
        assert strange.err.splitlines()[-1] == f"rho-eos: {NOTE}"
        known = command(*words, EXAMPLE, *short)
        assert known.code == 0 and NOTE not in known.err
    json.loads(command("generate", "--json", "Count to three.", *short).out)  # stdout is the answer


def test_a_conversation_is_not_what_it_was_taught(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = [{"role": role, "content": EXAMPLE} for role in ("user", "assistant", "user")]
    assert note_on("tiny", {"messages": turns}) == TURNS
    assert note_on("tiny", turns[:1]) is None and note_on("a-folder", turns) is None
    command = Command(monkeypatch, capsys)
    lines = [EXAMPLE, EXAMPLE, "Count to three.", "Count to four.", "/reset", EXAMPLE]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    said = command("chat", "--max-new-tokens", "16").err
    assert said.count(TURNS) == said.count(NOTE) == 1


def test_a_file_of_prompts_is_remarked_on_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = Command(monkeypatch, capsys)
    source, target = tmp_path / "in.txt", tmp_path / "out.jsonl"
    job = ("generate", "-i", source, "-o", target, "--max-new-tokens", "16")
    source.write_text(f"{EXAMPLE}\nCount to three.\nCount to four.\n")
    strange = command(*job)
    assert strange.code == 0 and strange.err.count(NOTE) == 1
    assert NOTE not in command(*job).err  # nothing is left to ask
    source.write_text(f"{EXAMPLE}\n")
    known = command(*job, "--overwrite")
    assert known.code == 0 and NOTE not in known.err
