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
from rho_eos.decoding.registry import policies
from rho_eos.embedded.tasks import held_out
from rho_eos.text.ask import Ask
from rho_eos.text.infilling import lay_out
from tests.evals.command import Run

FIXED = {"policy": "fixed", "initial_length": 6}
QUESTION = "Write a Python function that takes a list xs:\n1) add 3 to each\n2) reverse the list"
BEFORE = "def f(xs):\n    # 1) add 3 to each"
BEHIND = "\n    # 2) reverse the list\n    xs = xs[::-1]\n    return xs"


@pytest.fixture(scope="module")
def llm(byte_checkpoint: Path) -> LLM:
    return LLM(str(byte_checkpoint))


@pytest.fixture(scope="module")
def tiny() -> LLM:
    return LLM("tiny")


def test_lines_cut_out_of_programs_come_back(tiny: LLM) -> None:
    """A small form of `python -m benchmarks.infill`, on other lines."""
    wanted = cases(24, seed=1)
    assert restored(wanted, put_back(tiny, wanted, {"policy": "fixed"})) >= 0.9
    cached = put_back(tiny, wanted, {"policy": "fixed", "cache": "window"})
    assert restored(wanted, cached) >= 0.9
    assert any(o.usage.refreshes < o.usage.nfe for o in cached)


def test_their_length_is_found(tiny: LLM) -> None:
    wanted = cases(6, seed=2)
    for case in wanted[:2]:  # by default
        found = tiny.infill(case.before, case.behind, prompt=case.prompt)
        assert found.usage.n_token == len(found.token_ids)
        assert found.finish_reason == "stop"
    assert restored(wanted, put_back(tiny, wanted, {"policy": "cal"})) >= 0.6  # the same, named
    published = {"policy": "cal", "evidence": "confidence"}
    assert DecodeParams(**published).model_dump()["patience"] == 4


def test_token_ids_are_what_stands_between(llm: LLM) -> None:
    prefix, suffix = "def f(x):", "return x"
    output = llm.infill(prefix, suffix, FIXED)
    assert len(output.token_ids) == 6 and output.token_ids == output.canvas_token_ids
    assert output.text == llm.preparer.detokenize(output.token_ids)
    start, end = llm.tokenizer.bos_token_id, llm.special.eos
    before = [*([] if start is None else [start]), *llm.tokenizer.encode(prefix)]
    behind = [*llm.tokenizer.encode(suffix), end]
    assert llm.infill(before, behind, FIXED).token_ids == output.token_ids
    assert output.usage.prompt_tokens == len(before) + len(behind)
    assert output.usage.positions_evaluated == output.usage.nfe * (len(before) + len(behind) + 6)


def test_the_suffix_matters(llm: LLM) -> None:
    texts = {tuple(llm.infill("ab", suffix, FIXED).token_ids) for suffix in ("yz", "q", "0000")}
    assert len(texts) > 1


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
    written_out = template.replace(f"___{{{sizes[0]}}}", mask * sizes[0])
    written_out = written_out.replace(f"___{{{sizes[1]}}}", mask * sizes[1])
    again = tiny.fill(written_out, {"policy": "fixed"}, prompt=problem.prompt)
    assert again.text == output.text
    searched = tiny.fill(template, {"policy": "cal"}, prompt=problem.prompt)
    for piece in ("\n".join(lines[:2]), f"\n{lines[3]}", "\n".join(lines[5:])):
        assert piece in searched.text
    assert len(searched.gaps) == 2


def test_text_that_no_tokenizer_gives_back_stays_exactly(llm: LLM) -> None:
    template = '{"näme": "___",\t "age": ____{2}}  \n\n'
    output = llm.fill(template, FIXED)
    first, second = output.gaps
    assert output.text == f'{{"näme": "{first}",\t "age": {second}}}  \n\n'
    assert len(output.token_ids) == 8


def test_a_gap_at_the_end_may_end_by_itself(llm: LLM) -> None:
    """Nothing is given behind it, so every policy may decode it."""
    how = {"policy": "rho-eos", "initial_length": 4, "max_new_tokens": 12}
    output = llm.fill("abc ___", how)
    assert output.text.startswith("abc ")
    streamed = list(llm.stream(None, how, template="abc ___"))
    assert "".join(event.delta for event in streamed) == output.text


def test_a_stream_of_a_template_sends_the_filled_text(llm: LLM) -> None:
    events = list(llm.stream(None, FIXED, template="a___b___c"))
    output = events[-1].output
    assert output is not None
    assert "".join(event.delta for event in events) == output.text
    assert output.text == f"a{output.gaps[0]}b{output.gaps[1]}c"


def test_token_ids_may_be_a_template(llm: LLM) -> None:
    mask = llm.special.mask
    layout = lay_out([70, mask, mask, 71, mask, 72], llm.tokenizer, llm.special, 1000, 9, 100)
    assert (layout.before, layout.suffix) == ([70], [72])
    assert layout.canvas == [mask, mask, 71, mask] and layout.gaps == [0, 0, -1, 1]
    output = llm.fill([70, mask, mask, 71, mask, 72], {"policy": "fixed"})
    assert len(output.token_ids) == 3 and output.canvas_token_ids[2] == 71


@pytest.mark.parametrize("policy", sorted({*policies()} - {"cal", "dreamon", "fixed"}))
def test_policies_that_end_with_the_text_take_no_suffix(llm: LLM, policy: str) -> None:
    sentence = rf"policy {policy} lets its canvas end where .* take one of cal, fixed"
    with pytest.raises(UserError, match=sentence):
        llm.infill("a", "b", {"policy": policy})
    with pytest.raises(UserError, match=sentence):
        llm.fill("a ___ b", {"policy": policy})
    with pytest.raises(UserError, match=sentence):
        llm.fill("a ___{3}", policy=policy)  # it would become as long as the text
    assert llm.fill("a ___{3}").usage.n_token == 3


def test_token_ids_may_be_an_array(llm: LLM) -> None:
    """As rollouts hand them out."""
    how = {"policy": "fixed", "initial_length": 4}
    before, behind = np.array([70, 71]), np.array([72, 73])
    given = llm.infill(before.tolist(), behind.tolist(), how)
    assert llm.infill(before, behind, how).token_ids == given.token_ids
    template = [70, 71, *[llm.special.mask] * 4, 72]
    filled = llm.fill(np.array(template), how)
    assert filled.token_ids == llm.fill(template, how).token_ids


def test_what_is_refused(llm: LLM) -> None:
    mask = llm.special.mask
    with pytest.raises(UserError, match="needs a model with an EXPAND token"):
        llm.infill("a", "b", {"policy": "dreamon"})
    with pytest.raises(UserError, match="the suffix holds the MASK id"):
        llm.infill("a", [70, mask], FIXED)
    with pytest.raises(UserError, match="has no gap"):
        llm.fill("all is said", FIXED)
    with pytest.raises(UserError, match="MASKs together; that is more than the model's context"):
        llm.fill("x" + "___{999999}" * 1000)  # before any of them is made
    for gap in ("___{0}", "___{-1}"):
        with pytest.raises(UserError, match="has no MASK"):
            llm.fill(f"a {gap} b", FIXED)
    with pytest.raises(UserError, match="999999 MASKs together; that is more than the model's"):
        llm.fill("a ___{999999} b", FIXED)
    with pytest.raises(UserError, match="suffix and template do not go together"):
        llm.generate(["a"], FIXED, suffix="b", template="c ___")
    with pytest.raises(UserError, match="stop does not go with a template"):
        llm.fill("a ___ b", {**FIXED, "stop": ["x"]})
    with pytest.raises(UserError, match="more than the model's context"):
        llm.infill("a", "b" * 5000, FIXED)
    with pytest.raises(UserError, match="the prefix is a text"):
        llm.infill([70], "b", FIXED, prompt="question")
    for suffix in (b"abc", 3):
        kind = type(suffix).__name__
        with pytest.raises(UserError, match=f"a suffix is a text or token ids, not {kind}"):
            llm.infill([70], suffix, FIXED)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="the suffix holds 9999"):
        llm.infill([70], [9999], FIXED)
    with pytest.raises(UserError, match="a prompt is a text, messages or token ids, not int"):
        llm.infill(5, "b", FIXED)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="1234567 MASKs together"):
        llm.fill("a ___{1234567} b", FIXED)
    half = "a \ud800 ___ b"
    for call in (
        lambda: llm.infill(half, "b"),
        lambda: llm.infill("a", half),
        lambda: llm.fill(half),
        lambda: llm.infill(half, "b", prompt="question"),
    ):
        with pytest.raises(UserError, match="half a character"):
            call()


def test_a_template_keeps_to_the_lengths_that_are_asked_for(tiny: LLM) -> None:
    def tokens(text: str) -> list[int]:
        return [int(n) for n in tiny.tokenizer.encode(text, add_special_tokens=False)]

    for how in ({}, {"policy": "cal"}, {"policy": "fixed"}):
        stated = tiny.fill("def f(xs):___{3}\n    return ___{1} xs", how)
        assert len(stated.token_ids) == 4
    with pytest.raises(UserError, match="max_new_tokens is 5, but the gaps have 20 MASKs"):
        tiny.fill("a___{20} b", {"max_new_tokens": 5})
    with pytest.raises(UserError, match="gaps have 78 MASKs, 8 of them where none are stated"):
        tiny.fill("a___{70} b ___", {"max_new_tokens": 70})
    with pytest.raises(UserError, match="min_new_tokens is 30, but the gaps have 2 MASKs"):
        tiny.fill("a___{2} b", {"min_new_tokens": 30})
    for template in ("a___\n    return xs", "a___ b ___\n    return xs"):
        long = tiny.fill(template, {"min_new_tokens": 30})
        assert len(long.token_ids) >= 30
        assert "\n    return xs" in long.text
    searched = tiny.fill(f"{BEFORE}___{BEHIND}", prompt=QUESTION)
    assert searched.gaps == ["\n    xs = [x + 3 for x in xs]"]
    assert len(searched.token_ids) == len(tokens(searched.gaps[0])) > 8


def test_the_last_gap_has_nothing_behind_it_and_still_ends_where_the_text_does(tiny: LLM) -> None:
    whole = f"{BEFORE}\n    xs = [x + 3 for x in xs]{BEHIND}"
    for how in ({}, {"policy": "cal"}, {"policy": "scout"}):
        assert tiny.fill(f"{BEFORE}___", how, prompt=QUESTION).text == whole
    two = tiny.fill(f"{BEFORE}___\n    # 2) reverse the list___", prompt=QUESTION)
    assert two.finish_reason == "stop" and two.text == whole


def test_who_names_no_policy_gets_one_that_can_at_every_door(tiny: LLM) -> None:
    wanted = tiny.infill(BEFORE, BEHIND)
    params = DecodeParams(temperature=0.0)
    found = [
        tiny.infill(BEFORE, BEHIND, params),
        tiny.generate(BEFORE, suffix=BEHIND)[0],
        tiny.generate(BEFORE, params, suffix=BEHIND, patience=8)[0],
        [*tiny.stream(BEFORE, suffix=BEHIND)][-1].output,
        tiny.generate([None], template=f"{BEFORE}___{BEHIND}")[0],
        tiny.fill(f"{BEFORE}___{BEHIND}", params),
    ]
    assert [output.token_ids for output in found if output] == [wanted.token_ids] * 6


def test_an_empty_suffix_leaves_a_document_to_go_on_with(llm: LLM) -> None:
    plain = llm.generate(["a"], FIXED, raw=True)[0]
    for suffix in ("", [], None):
        assert llm.infill("a", suffix, FIXED).token_ids == plain.token_ids
    assert llm.generate(["a"], FIXED, suffix="")[0].token_ids == plain.token_ids
    default = llm.infill("a", "")
    assert default.token_ids == llm.generate(["a"], raw=True)[0].token_ids


def test_the_canvas_is_bounded_by_what_text_leaves_of_the_context(llm: LLM) -> None:
    params = DecodeParams(policy="cal", initial_length=4, max_new_tokens=10_000)
    [request] = llm.preparer.prepare(Ask("abc", params, suffix="xyz"))
    assert request.params.max_new_tokens == llm.context_length - request.canvas.given_length


def test_a_hole_in_a_file(run: Run, tmp_path: Path, llm: LLM) -> None:
    source = tmp_path / "hole.py"
    for text in ("a___\r\nb\n", "a___b"):
        source.write_bytes(text.encode())
        found = run("generate", "--template-file", str(source), "--policy", "fixed")
        wanted = llm.fill(text, {"policy": "fixed"}).text
        assert found.out == (wanted if text.endswith("\n") else f"{wanted}\n")
    source.write_bytes(b"\xff___")
    for more, complaint in (
        ((), f"cannot read {source}: it is not UTF-8"),
        (("--template", "a___"), "give either --template or --template-file, not both"),
        (("-i", "in.jsonl", "-o", "out.jsonl"), "cannot read"),
    ):
        refused = run("generate", "--template-file", str(source), *more)
        assert refused.code == 2 and complaint in refused.err
    missing = run("generate", "--template-file", str(tmp_path / "missing"))
    assert missing.code == 2 and "No such file" in missing.err


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
    found = run("generate", "--template", "a___b___{2}c", *how)
    filled = json.loads(found.out)
    template = llm.fill("a___b___{2}c", FIXED)
    assert (filled["text"], filled["gaps"]) == (template.text, template.gaps)
    refused = run("generate", "ab", "--suffix", "yz", "--policy", "blocks")
    assert refused.code == 2 and refused.err.count("\n") <= 2

    lines = [
        {"id": "text", "prompt": "ab", "suffix": "yz", **FIXED},
        {"id": "ids", "prompt_token_ids": [70, 71], "suffix_token_ids": [72, 73], **FIXED},
        {"id": "template", "template": "a___b___{2}c", **FIXED},
        {"id": "found", "prompt": "ab", "suffix": "yz"},
        {"id": "both", "prompt": "ab", "suffix": "yz", "suffix_token_ids": [72]},
        {"id": "number", "prompt": "ab", "suffix": 5},
    ]
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = run("generate", "-i", str(source), "-o", str(target))
    assert done.code == 2 and "2 bad" in done.err, done.err
    outputs = {line["id"]: line for line in map(json.loads, target.read_text().splitlines())}
    assert outputs["text"]["token_ids"] == expected.token_ids
    assert outputs["ids"]["token_ids"] == llm.infill([70, 71], [72, 73], FIXED).token_ids
    assert outputs["template"]["text"] == template.text
    assert outputs["found"]["token_ids"] == llm.infill("ab", "yz").token_ids
    assert "both" not in outputs and "number" not in outputs


def test_what_holds_for_a_file_does_not_break_its_gaps(
    run: Run,
    tmp_path: Path,
    llm: LLM,
) -> None:
    gap, answer = {"id": "gap", "prompt": "ab", "suffix": "yz"}, {"id": "answer", "prompt": "ab"}
    empty = {"id": "empty", "prompt": "ab", "suffix": ""}
    source = tmp_path / "in.jsonl"

    def decoded(lines: list[dict[str, Any]], *options: str) -> dict[str, list[int]]:
        source.write_text("".join(json.dumps(line) + "\n" for line in lines))
        target = tmp_path / f"out{len(list(tmp_path.iterdir()))}.jsonl"
        done = run("generate", "-i", str(source), "-o", str(target), *options)
        assert done.code == 0, done.err
        found = map(json.loads, target.read_text().splitlines())
        return {line["id"]: line["token_ids"] for line in found}

    wanted = llm.infill("ab", "yz").token_ids
    for options in (("--preset", "sym"), ("--initial-length", "128")):
        found = decoded([gap, answer, empty], *options, "--max-new-tokens", "200")
        how = {"max_new_tokens": 200}
        assert found["gap"] == llm.infill("ab", "yz", how).token_ids
    patient = decoded([gap], "--patience", "2")["gap"]
    assert patient == llm.infill("ab", "yz", {"patience": 2}).token_ids
    assert decoded([gap, empty])["gap"] == wanted
    assert decoded([empty])["empty"] == llm.infill("ab", "").token_ids
    for bad in ({"suffix_token_ids": "hello"}, {"template": 7}):
        source.write_text(json.dumps({"prompt_token_ids": [70], **bad}) + "\n")
        refused = run("generate", "-i", str(source), "-o", str(tmp_path / "bad.jsonl"))
        assert refused.code == 2 and f"{next(iter(bad))} takes a" in refused.err


def test_bytes_that_are_no_text_get_a_sentence(run: Run) -> None:
    for words in (("a", "--suffix", "\udcff"), ("--template", "a\udcff ___")):
        refused = run("generate", *words)
        assert refused.code == 2 and "half a character" in refused.err
