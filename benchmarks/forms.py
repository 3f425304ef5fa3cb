"""`python -m benchmarks.forms`: what a form costs in a step, and whether it helps.

python -m benchmarks.forms step     milliseconds a step at a vocabulary of 126k
python -m benchmarks.forms batch    its share of a step of `tiny`, eight rows at once
python -m benchmarks.forms help     answers of `tiny`, held to the grammar of its tasks and free
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.problems import REPORTED, questions
from rho_eos import LLM
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.automaton import Automaton
from rho_eos.decoding.canvas import Canvas
from rho_eos.decoding.form import Form
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.prediction import Needs, Prediction
from rho_eos.engine.constrained import Constrained
from rho_eos.text.automaton_worker import over_bytes, over_tokens, trimmed
from rho_eos.text.forms import regex_of
from rho_eos.text.json_schema import escaped
from rho_problems import TASKS

VOCABULARY = 126_464  # LLaDA's
TEXT = {"type": "string"}
FLAT = {
    "type": "object",
    "properties": {"name": TEXT, "age": {"type": "integer"}, "alive": {"type": "boolean"}},
    "required": ["name", "age", "alive"],
}
ITEM = {
    "type": "object",
    "properties": {
        "what": TEXT,
        "price": {"type": "number"},
        "tags": {"type": "array", "items": TEXT},
    },
    "required": ["what", "price", "tags"],
}
NESTED = {
    "type": "object",
    "properties": {
        "number": {"type": "integer", "minimum": 1},
        "customer": FLAT,
        "items": {"type": "array", "items": ITEM},
        "currency": {"enum": ["EUR", "USD"]},
        "note": {"anyOf": [TEXT, {"type": "null"}]},
    },
    "required": ["number", "customer", "items", "currency", "note"],
}
CALLS = [
    {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": arguments},
        "required": ["name", "arguments"],
    }
    for name, arguments in (("find", FLAT), ("order", NESTED), ("tell", ITEM))
]
FORMS = {"flat": FLAT, "nested": NESTED, "tools": {"anyOf": CALLS}}


def vocabulary() -> list[bytes]:
    """As many tokens as LLaDA has: all bytes, and pieces of words such as byte-level BPE has."""
    random = np.random.default_rng(0)
    letters = b"etaoinshrdlucmfwypvbgkjqxzETAOINSHR0123456789.,:\"{}[]()_-'"
    tokens = dict.fromkeys(bytes([byte]) for byte in range(256))
    while len(tokens) < VOCABULARY - 8:
        among = letters[:26] if random.random() < 0.8 else letters
        picked = random.integers(0, len(among), int(random.integers(2, 10)))
        word = bytes(among[each] for each in picked)
        tokens[b" " + word if random.random() < 0.5 else word] = None
    return [*tokens, *[b""] * 8]


def compiled(regex: str, tokens: list[bytes], special: SpecialTokens) -> Automaton:
    data = np.frombuffer(b"".join(tokens), dtype=np.uint8)
    lengths = np.array([len(each) for each in tokens])
    table, accepting = over_bytes(regex)
    following, classes = over_tokens(table, data, lengths)
    return Automaton.of(trimmed(following, accepting, classes), special.ends)


def seconds(work: Callable[[], Any], times: int = 3) -> float:
    """The least of a few runs, in CPU time: other people's work does not count."""
    found = []
    for _ in range(times):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def step() -> None:
    """The reduction of logits to classes, and the chain, of one row of MASKs."""
    torch.set_num_threads(1)
    tokens = vocabulary()
    special = SpecialTokens(mask=VOCABULARY - 1, eos=VOCABULARY - 2)
    print("form    states classes pairs  compile s |   L  classes ms  chain ms  softmax ms  of 8B")
    for name, schema in FORMS.items():
        start = time.process_time()
        automaton = compiled(regex_of({"schema": schema}), tokens, special)
        took = time.process_time() - start
        size = f"{name:7} {len(automaton.next):6} {automaton.end:7} {len(automaton.source):5}"
        for length in (64, 256):
            *parts, forward = one_row(automaton, special, length)
            columns = "".join(f"{1000 * each:11.1f}" for each in parts)
            share = 100 * (parts[0] + parts[1]) / forward
            print(f"{size} {took:10.1f} | {length:3} {columns} {share:5.2f}%", flush=True)


def one_row(automaton: Automaton, special: SpecialTokens, length: int) -> tuple[float, ...]:
    """Seconds of CPU for the classes, for the chain, for the softmax that is made anyway, and for
    as many products as a forward of 8 billion weights takes over these positions alone."""
    params = DecodeParams(policy="rho-eos", max_new_tokens=512)
    assert params.parts is not None
    form = Form.of(automaton, params, params.parts.policy)
    canvas = Canvas.of(special, [1], length)
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(length, VOCABULARY, generator=generator) * 3
    whole, none = slice(0, length), np.zeros(length, dtype=np.float32)
    given = (form, canvas, canvas.masked, 0, 0.0, Needs(), none, None, logits.device, False)
    free = Prediction(canvas.masked, canvas.masked * 0, np.zeros(length), np.zeros(length))
    hidden, weights = torch.randn(length, 4096), torch.randn(4096, 4096)
    read = Constrained(*given)
    read.read(whole, logits)
    return (
        seconds(lambda: Constrained(*given).read(whole, logits)),
        seconds(lambda: read.prediction(free)),
        seconds(lambda: torch.softmax(logits, -1)),
        seconds(lambda: hidden @ weights) * 8e9 / weights.numel(),
    )


# ── the embedded model ───────────────────────────────────────────────────────────────────────

NUMBER = "[0-9]{1,2}"
LINE = rf"{NUMBER}\) "
TOTAL = f"{NUMBER} [-+*] {NUMBER} = {NUMBER}"
TERM = rf"(?:[-+] )?\({NUMBER} [-+*] {NUMBER}\) = {NUMBER}"
EVENT = rf"{LINE}[a-z]+(?: {NUMBER})?"
DONE = f"(?:add {NUMBER} to it|take {NUMBER} from it|multiply it by {NUMBER})"


def grammars() -> dict[str, str]:
    """What answers to the four tasks look like, from their generators."""
    full = rf"{EVENT}, so now we have {NUMBER} and {DONE}: {TOTAL}\n"
    more = rf"(?:{LINE}{TERM}, so the total is {TOTAL}\n)*"
    return {
        "tiny-gsm": rf"(?:Start with {NUMBER}\.\n(?:{full})+|(?:{EVENT}: {TOTAL}\n)+)#### {NUMBER}",
        "tiny-math": rf"{LINE}{TERM}\n{more}#### {NUMBER}",
        "tiny-mbpp": rf"def f\(xs\):\n(?:{steps('tiny-mbpp', 'xs')})+    return xs",
        "tiny-humaneval": rf"(?:{steps('tiny-humaneval', '[xnabmv]')})+    return [xnabmv]",
    }


def steps(task: str, variable: str) -> str:
    """Every operation in its words, then its code."""
    found = []
    for operation in TASKS[task].operations:  # type: ignore[attr-defined]
        said = "|".join(escaped(each).replace(r"\{k\}", NUMBER) for each in operation.phrases)
        code = [
            escaped(line).replace(r"\{k\}", NUMBER).replace(r"\{x\}", variable)
            for line in operation.code
        ]
        lines = "".join(f"    {line}\n" for line in code)
        found.append(f"    # {LINE}(?:{said})\n{lines}")
    return "|".join(found)


def batch() -> None:
    """Eight rows at once, with and without a form; every way has the same canvases and steps."""
    torch.set_num_threads(1)
    llm = LLM("tiny")
    prompts = [each.prompt for each in questions(2)]
    ways: dict[str, Any] = {"free": None, "grammar": {"regex": grammars()["tiny-gsm"]}}
    ways["flat schema"] = {"schema": FLAT}
    ask = {"policy": "fixed", "initial_length": 64, "commit": "quota", "early_stop": False}
    for name, constraint in ways.items():
        run = partial(llm.generate, prompts, ask, steps=16, constraint=constraint)
        run()
        print(f"{name:12} {1000 * seconds(run, 5) / 16:7.2f} ms of CPU a step", flush=True)


CANVASES: dict[str, dict[str, Any]] = {
    "ρ-EOS from 64": {"policy": "rho-eos"},
    "ρ-EOS from 16": {"policy": "rho-eos", "initial_length": 16},
}


def help_(limit: int) -> None:
    """Right answers, with the grammar of each task and without."""
    llm, forms = LLM("tiny"), grammars()
    asked = questions(limit)
    print("canvas           τ    form     right  of  forwards  " + "  ".join(TASKS), flush=True)
    for canvas, ask in CANVASES.items():
        for tau in (0.5, 0.7, 0.9):
            for held in (False, True):
                right: dict[str, int] = dict.fromkeys(TASKS, 0)
                forwards = 0
                for name in TASKS:
                    own = [each for each in asked if each.task.name == name]
                    constraint = {"regex": forms[name]} if held else None
                    prompts = [each.prompt for each in own]
                    outputs = llm.generate(prompts, ask, threshold=tau, constraint=constraint)
                    forwards += sum(output.usage.nfe for output in outputs)
                    right[name] = sum(
                        each.right(output.text) for each, output in zip(own, outputs, strict=True)
                    )
                each_task = "  ".join(f"{count:{len(name)}}" for name, count in right.items())
                way = f"{canvas:14} {tau:4}   {'grammar' if held else 'free':7}"
                counts = f"{sum(right.values()):5} {len(asked):4} {forwards / len(asked):8.2f}"
                print(way, counts, "", each_task, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("step", "batch", "help"))
    parser.add_argument("--limit", type=int, default=REPORTED, help="problems of each task")
    given = parser.parse_args()
    if given.what == "help":
        help_(given.limit)
    else:
        (step if given.what == "step" else batch)()
