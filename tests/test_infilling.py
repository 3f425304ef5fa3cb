"""The doors to infilling: Python, command line, JSON lines; and what is refused there."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.infill import cases, put_back, restored
from rho_eos import LLM, DecodeParams, UserError
from rho_eos.decoding.policy import Infills
from rho_eos.decoding.registry import policies
from rho_problems import held_out
from tests.evals.command import Run
from tests.lines import by_id, write_lines

FIXED = {"policy": "fixed", "initial_length": 6}
QUESTION = "Write a Python function that takes a list xs:\n1) add 3 to each\n2) reverse the list"
BEFORE = "def f(xs):\n    # 1) add 3 to each"
BEHIND = "\n    # 2) reverse the list\n    xs = xs[::-1]\n    return xs"


def test_lines_cut_out_of_programs_come_back(tiny: LLM) -> None:
    """A small form of `python -m benchmarks.infill`, on other lines."""
    wanted = cases(24, seed=1)
    assert restored(wanted, put_back(tiny, wanted, {"policy": "fixed"})) >= 0.9
    cached = put_back(tiny, wanted, {"policy": "fixed", "cache": "window"})
    assert restored(wanted, cached) >= 0.9
    assert any(o.usage.refreshes < o.usage.nfe for o in cached)
    searched = cases(6, seed=2)
    assert restored(searched, put_back(tiny, searched, {"policy": "cal"})) >= 0.6


def test_token_ids_are_what_stands_between(llm: LLM) -> None:
    prefix, suffix = "def f(x):", "return x"
    output = llm.infill(prefix, suffix, FIXED)
    assert len(output.token_ids) == 6 and output.token_ids == output.canvas_token_ids
    assert output.text == llm.tokenizer.decode(output.token_ids, skip_special_tokens=True)
    start, end = llm.tokenizer.bos_token_id, llm.special.eos
    before = [*([] if start is None else [start]), *llm.tokenizer.encode(prefix)]
    behind = [*llm.tokenizer.encode(suffix), end]
    assert llm.infill(before, behind, FIXED).token_ids == output.token_ids
    assert output.usage.prompt_tokens == len(before) + len(behind)
    assert output.usage.positions_evaluated == output.usage.nfe * (len(before) + len(behind) + 6)
    assert llm.infill(prefix, "0000", FIXED).token_ids != output.token_ids  # what follows matters


def test_a_template_keeps_its_text_and_fills_its_gaps(tiny: LLM) -> None:
    problem = held_out("tiny-mbpp", 1)[0]
    lines = problem.answer.split("\n")
    encode = tiny.tokenizer.encode
    sizes = [len(encode(f"\n{lines[at]}", add_special_tokens=False)) for at in (2, 4)]
    template = "\n".join(lines[:2]) + f"___{{{sizes[0]}}}\n{lines[3]}___{{{sizes[1]}}}\n"
    template += "\n".join(lines[5:])
    output = tiny.fill(template, {"policy": "fixed"}, prompt=problem.prompt)
    assert output.gaps == [f"\n{lines[2]}", f"\n{lines[4]}"]
    assert output.text == problem.answer
    mask = tiny.tokenizer.mask_token
    for gap, size in enumerate(sizes):
        template = template.replace(f"___{{{size}}}", mask * sizes[gap], 1)
    assert tiny.fill(template, {"policy": "fixed"}, prompt=problem.prompt).text == output.text


def test_text_that_no_tokenizer_gives_back_stays_exactly(llm: LLM) -> None:
    events = list(llm.stream(None, FIXED, template='{"näme": "___",\t "age": ____{2}}  \n\n'))
    output = events[-1].output
    assert output is not None
    first, second = output.gaps
    assert output.text == f'{{"näme": "{first}",\t "age": {second}}}  \n\n'
    assert "".join(event.delta for event in events) == output.text
    assert len(output.token_ids) == 8


def test_token_ids_may_be_a_template_and_an_array(llm: LLM) -> None:
    """Rollouts hand out arrays."""
    mask, how = llm.special.mask, {"policy": "fixed", "initial_length": 4}
    template = [70, mask, mask, 71, mask, 72]
    output = llm.fill(np.array(template), how)
    assert len(output.token_ids) == 3 and output.canvas_token_ids[2] == 71
    assert output.usage.prompt_tokens == len([llm.tokenizer.bos_token_id, 70, 71, 72])
    assert output.token_ids == llm.fill(template, how).token_ids
    given = llm.infill([70, 71], [72, 73], how)
    assert llm.infill(np.array([70, 71]), np.array([72, 73]), how).token_ids == given.token_ids


ANSWERS_ONLY = sorted(name for name, each in policies().items() if not issubclass(each, Infills))


def test_policies_that_end_with_the_text_take_no_suffix(llm: LLM) -> None:
    for policy in ANSWERS_ONLY:
        sentence = rf"policy {policy} lets its canvas end where .* take one of cal, fixed"
        for template in ("a ___ b", "a ___{3}"):  # the second would become as long as the text
            with pytest.raises(UserError, match=sentence):
                llm.fill(template, policy=policy)


MASK = 2  # of the small checkpoint
HALF = "a \ud800 ___ b"


@pytest.mark.parametrize(
    ("door", "given", "options", "says"),
    [
        ("infill", ("a", "b"), {"policy": "dreamon"}, "needs a model with an EXPAND token"),
        ("infill", ("a", [70, MASK]), FIXED, "the suffix holds the MASK id"),
        ("infill", ("a", "b" * 100_000), FIXED, "more than the model's context"),
        ("infill", ([70], "b"), {**FIXED, "prompt": "question"}, "the prefix is a text"),
        ("infill", ([70], b"abc"), FIXED, "the suffix takes a text or a non-empty list"),
        ("infill", ([70], [9999]), FIXED, "the suffix holds 9999"),
        ("infill", (5, "b"), FIXED, "a prompt is a text, messages or token ids, not int"),
        ("infill", (HALF, "b"), {}, "half a character"),
        ("infill", ("a", HALF), {}, "half a character"),
        ("fill", (HALF,), {}, "half a character"),
        ("fill", ("all is said",), FIXED, "has no gap"),
        ("fill", ("x" + "___{999999}" * 1000,), {}, "999999000 MASKs together; .* context"),
        ("fill", ("a ___{0} b",), FIXED, "has no MASK"),
        ("fill", ("a ___ b",), {**FIXED, "stop": ["x"]}, "stop does not go with a template"),
        ("generate", (["a"],), {**FIXED, "suffix": "b", "template": "c ___"}, "do not go together"),
        ("fill", ("a___{20} b",), {"max_new_tokens": 5}, "is 5, but the gaps have 20 MASKs"),
        ("fill", ("a___{70} ___",), {"max_new_tokens": 70}, "78 MASKs, 8 of them where none are"),
        ("fill", ("a___{2} b",), {"min_new_tokens": 30}, "is 30, but the gaps have 2 MASKs"),
    ],
)
def test_what_is_refused(
    llm: LLM, door: str, given: tuple[Any, ...], options: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        getattr(llm, door)(*given, **options)


def test_a_template_keeps_to_the_lengths_that_are_asked_for(tiny: LLM) -> None:
    for how in ({}, {"policy": "fixed"}):
        stated = tiny.fill("def f(xs):___{3}\n    return ___{1} xs", how)
        assert len(stated.token_ids) == 4
    long = tiny.fill("a___ b ___\n    return xs", {"min_new_tokens": 30})
    assert len(long.token_ids) >= 30 and "\n    return xs" in long.text
    searched = tiny.fill(f"{BEFORE}___{BEHIND}", prompt=QUESTION)
    assert searched.gaps == ["\n    xs = [x + 3 for x in xs]"]


def test_the_last_gap_has_nothing_behind_it_and_still_ends_where_the_text_does(tiny: LLM) -> None:
    whole = f"{BEFORE}\n    xs = [x + 3 for x in xs]{BEHIND}"
    for how in ({}, {"policy": "scout"}):
        assert tiny.fill(f"{BEFORE}___", how, prompt=QUESTION).text == whole
    two = tiny.fill(f"{BEFORE}___\n    # 2) reverse the list___", prompt=QUESTION)
    assert two.finish_reason == "stop" and two.text == whole


def test_who_names_no_policy_gets_one_that_can_at_every_door(tiny: LLM) -> None:
    wanted = tiny.infill(BEFORE, BEHIND)
    found = [
        tiny.generate(BEFORE, DecodeParams(), suffix=BEHIND)[0],
        [*tiny.stream(BEFORE, suffix=BEHIND)][-1].output,
        tiny.fill(f"{BEFORE}___{BEHIND}"),
    ]
    assert [output.token_ids for output in found if output] == [wanted.token_ids] * 3


def test_an_empty_suffix_leaves_a_document_to_go_on_with(llm: LLM) -> None:
    plain = llm.generate(["a"], FIXED, raw=True)[0]
    for suffix in ("", [], None):
        assert llm.infill("a", suffix, FIXED).token_ids == plain.token_ids
    assert llm.infill("a", "").token_ids == llm.generate(["a"], raw=True)[0].token_ids


def test_a_hole_in_a_file(run: Run, tmp_path: Path, llm: LLM) -> None:
    source = tmp_path / "hole.py"
    for text in ("a___\r\nb\n", "a___b"):
        source.write_bytes(text.encode())
        found = run("generate", "--template-file", source, "--policy", "fixed")
        wanted = llm.fill(text, {"policy": "fixed"}).text
        assert found.out == (wanted if text.endswith("\n") else f"{wanted}\n")
    source.write_bytes(b"\xff___")
    refused = run("generate", "--template-file", source)
    assert refused.code == 2 and f"cannot read {source}: it is not UTF-8" in refused.err
    refused = run("generate", "--template-file", source, "--template", "a___")
    assert refused.code == 2 and "give either --template or --template-file" in refused.err


def test_the_hole_of_the_documentation(tmp_path: Path) -> None:
    """The commands of docs/infilling.md, in a shell, up to the server."""
    page = (Path(__file__).parents[1] / "docs" / "infilling.md").read_text()
    block = page.partition("```sh\n")[2].partition("\nrho-eos serve")[0]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", "-ec", block]
    subprocess.run(command, cwd=tmp_path, env=os.environ | {"PATH": path}, check=True, timeout=300)
    wanted = f"{BEFORE}\n    xs = [x + 3 for x in xs]{BEHIND}\n"
    assert (tmp_path / "filled.py").read_text() == wanted


def test_command_line_and_json_lines(run: Run, tmp_path: Path, llm: LLM) -> None:
    how = ("--policy", "fixed", "--initial-length", "6", "--json")
    found = run("generate", "ab", "--suffix", "yz", *how)
    expected = llm.infill("ab", "yz", FIXED)
    assert json.loads(found.out)["token_ids"] == expected.token_ids
    filled = json.loads(run("generate", "--template", "a___b___{2}c", *how).out)
    template = llm.fill("a___b___{2}c", FIXED)
    assert (filled["text"], filled["gaps"]) == (template.text, template.gaps)

    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [
        {"id": "text", "prompt": "ab", "suffix": "yz", **FIXED},
        {"id": "ids", "prompt_token_ids": [70, 71], "suffix_token_ids": [72, 73], **FIXED},
        {"id": "template", "template": "a___b___{2}c", **FIXED},
        {"id": "found", "prompt": "ab", "suffix": "yz"},
        {"id": "both", "prompt": "ab", "suffix": "yz", "suffix_token_ids": [72]},
        {"id": "number", "prompt": "ab", "suffix": 5},
        {"id": "no template", "prompt": "ab", "template": 7},
    ]
    write_lines(source, lines)
    # What holds for the file is not forced upon a policy that has no such parameter.
    done = run("generate", "-i", source, "-o", target, "--preset", "sym")
    assert done.code == 2 and "3 bad" in done.err, done.err
    outputs = by_id(target)
    assert set(outputs) == {"text", "ids", "template", "found"}
    assert outputs["text"]["token_ids"] == expected.token_ids
    assert outputs["ids"]["token_ids"] == llm.infill([70, 71], [72, 73], FIXED).token_ids
    assert outputs["template"]["text"] == template.text
    assert outputs["found"]["token_ids"] == llm.infill("ab", "yz").token_ids
