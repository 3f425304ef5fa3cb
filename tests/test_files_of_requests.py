"""`generate` from file to file: nothing stale is kept, nothing destroyed, a bad line is named."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rho_eos import LLM
from tests.checkpoints import write_checkpoint
from tests.evals.command import Command, Result
from tests.support import largest_file

SHORT = ("--initial-length", "16", "--max-new-tokens", "32")


class Job:
    """`generate` on two files of a folder."""

    def __init__(self, command: Command, folder: Path, model: Path) -> None:
        self.command = command
        self.folder = folder
        self.model = model
        self.source, self.target = folder / "in.jsonl", folder / "out.jsonl"

    def ask(self, *lines: dict[str, Any] | str) -> None:
        texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
        self.source.write_text("".join(text + "\n" for text in texts))

    def __call__(self, *words: object, source: Path | None = None) -> Result:
        files = ("-i", source or self.source, "-o", self.target)
        return self.command("generate", "-m", self.model, *files, *SHORT, *words)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.target.read_text().splitlines()]


@pytest.fixture
def job(command: Command, tmp_path: Path, byte_checkpoint: Path) -> Job:
    job = Job(command, tmp_path, byte_checkpoint)
    job.ask(*({"id": f"r{n}", "prompt": f"number {n}"} for n in range(3)))
    return job


def test_every_line_says_what_it_was_made_from(job: Job) -> None:
    job.ask({"id": "a", "prompt": "x"}, {"id": "b", "prompt": "x", "seed": 5}, {"prompt": "y"})
    assert job("--temperature", "0.5").code == 0
    lines = {line["id"]: line for line in job.lines}
    assert lines["a"]["params"]["temperature"] == 0.5
    assert lines["b"]["params"]["seed"] == 5 and lines["a"]["params"]["seed"] == 0
    assert lines["a"]["prompt_hash"] == lines["b"]["prompt_hash"] != lines["3"]["prompt_hash"]
    assert len({line["model_hash"] for line in lines.values()}) == 1


@pytest.mark.parametrize(
    ("words", "difference"),
    [
        (("--temperature", "0.5"), "temperature 0.0, not 0.5"),
        (("--policy", "fixed"), "policy 'rho-eos', not 'fixed'"),
        (("--raw",), "another prompt"),
    ],
)
def test_answers_of_other_settings_are_refused_and_kept(
    job: Job, words: tuple[str, ...], difference: str
) -> None:
    assert job().code == 0
    before = job.target.read_bytes()
    result = job(*words)
    assert result.code == 2 and difference in result.err and "--overwrite" in result.err
    assert job.target.read_bytes() == before
    result = job(*words, "--overwrite")
    assert result.code == 0 and "3 generated →" in result.err
    assert len(job.lines) == 3 and job.target.read_bytes() != before


def test_another_prompt_under_an_id_and_another_model_are_refused(job: Job, tmp_path: Path) -> None:
    assert job().code == 0
    before = job.target.read_bytes()
    lines = [{"id": "r0", "prompt": "number 0"}, {"id": "r1", "prompt": "number one"}]
    job.ask(*lines)
    result = job()
    assert result.code == 2 and "'r1'" in result.err and "another prompt" in result.err
    job.ask(lines[0])
    job.model = write_checkpoint(tmp_path / "other", seed=9)
    result = job()
    assert result.code == 2 and "'r0'" in result.err and "another model" in result.err
    assert job.target.read_bytes() == before


def test_a_line_in_the_middle_of_the_input_shifts_no_answers(job: Job) -> None:
    """Without ids a line goes by its number, so that a new line renames those behind it."""
    job.ask({"prompt": "one"}, {"prompt": "two"})
    assert job().code == 0
    job.ask({"prompt": "one"}, {"prompt": "one and a half"}, {"prompt": "two"})
    assert job().code == 2
    job.ask({"prompt": "one"}, {"prompt": "two"}, {"prompt": "three"})
    assert "1 generated, 2 were there already" in job().err


def test_outputs_can_be_put_in_the_order_of_the_input(job: Job) -> None:
    long, short = ("--max-new-tokens", "96"), {"initial_length": 4, "max_new_tokens": 4}
    job.ask({"id": "z", "prompt": "slow"}, {"id": "a", "prompt": "fast", **short})
    assert job(*long).code == 0
    assert [line["id"] for line in job.lines] == ["a", "z"], "they finished in this order"
    content = {line["id"]: line for line in job.lines}
    result = job(*long, "--in-order")
    assert "0 generated, 2 were there already" in result.err
    assert [line["id"] for line in job.lines] == ["z", "a"]
    assert {line["id"]: line for line in job.lines} == content


def test_steps_are_traced_and_a_continued_run_traces_the_rest(job: Job) -> None:
    trace = job.folder / "trace.jsonl"

    def steps() -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for line in map(json.loads, trace.read_text().splitlines()):
            found.setdefault(line["id"], []).append(line["step"])
        return found

    assert job("--trace-file", trace).code == 0
    want = {line["id"]: list(range(line["nfe"])) for line in job.lines}
    assert steps() == want
    assert all("trace" not in line for line in job.lines)
    # Killed after the trace of the last one was written, before its result was.
    job.target.write_text("".join(job.target.read_text().splitlines(keepends=True)[:2]))
    assert job("--trace-file", trace).code == 0
    assert steps() == want
    trace.unlink()
    result = job("--trace-file", trace)
    assert result.code == 2 and "lacks the steps of 3 outputs" in result.err


def test_a_trace_never_replaces_a_file_of_somebody_else(job: Job) -> None:
    notes = job.folder / "notes.txt"
    notes.write_text("dear diary\n")
    assert job("--trace-file", notes).code == 2
    one = job.command("generate", "hi", "-m", job.model, *SHORT, "--trace-file", notes)
    assert one.code == 2 and "not a result line" in one.err
    assert notes.read_text() == "dear diary\n"


def test_input_as_a_table_or_plain_text(job: Job) -> None:
    import pyarrow
    import pyarrow.parquet

    rows = [
        {"id": "a", "prompt": "one, two", "seed": 3, "temperature": 0.5, "block_length": None},
        {"id": "b", "prompt": 'a "word"\nand a line', "seed": 0, "temperature": 0.0},
    ]
    job.ask(*rows)
    assert job("--in-order").code == 0
    want = [(line["id"], line["text"], line["params"]["seed"]) for line in job.lines]

    table, parquet = job.folder / "in.csv", job.folder / "in.parquet"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "prompt", "seed", "temperature", "block_length"])
        writer.writeheader()
        writer.writerow({**rows[0], "block_length": "none"})
        writer.writerow(rows[1])
    columns = {name: [row.get(name) for row in rows] for name in ("id", "prompt", "seed")}
    temperature = [row["temperature"] for row in rows]
    pyarrow.parquet.write_table(
        pyarrow.table({**columns, "temperature": temperature}), str(parquet)
    )
    for source in (table, parquet):
        job.target.unlink()
        result = job("--in-order", source=source)
        assert result.code == 0, result.err
        got = [(line["id"], line["text"], line["params"]["seed"]) for line in job.lines]
        if source is parquet:  # which has no column for the block length
            assert [each[0::2] for each in got] == [each[0::2] for each in want]
        else:
            assert got == want

    text = job.folder / "in.txt"
    text.write_bytes("\ufeffnumber 0\r\n\nnumber 2\n".encode())
    job.ask({"id": "1", "prompt": "number 0"}, {"id": "3", "prompt": "number 2"})
    job.target.unlink()
    assert job(source=text).code == 0
    assert "0 generated, 2 were there already" in job().err  # the same prompts, the same ids


def test_bad_rows_of_tables_and_texts_are_named(job: Job) -> None:
    table, text = job.folder / "in.csv", job.folder / "in.txt"
    table.write_bytes(
        b'prompt,seed\ngood,1\nbad,x\nshort\nalso good,\n\xff\xfe,1\n"a"b,1\n'
        + b"x" * 200_000
        + b',1\nthe last good,2\n"never closed,3\n'
    )
    for already in ("3 generated", "0 generated, 3 were there already"):
        result = job(source=table)
        assert result.code == 2 and already in result.err
        assert {line["id"] for line in job.lines} == {"2", "5", "9"}
        assert re.search(r"in\.csv:3: seed is 'x', but takes an integer", result.err)
        assert re.search(r"in\.csv:4: expected the 2 columns", result.err)
        assert re.search(r"in\.csv:6: not UTF-8 text", result.err)
        assert all(re.search(rf"in\.csv:{row}: not CSV: ", result.err) for row in (7, 8, 10))
    job.target.unlink()
    text.write_bytes(b"good\n\xff\xfe\n")
    result = job(source=text)
    assert result.code == 2 and "in.txt:2: not UTF-8" in result.err and len(job.lines) == 1


POISON = {
    "an unpaired surrogate": r'{"prompt": "a \ud800 b"}',
    "one in an id": r'{"id": "\udfff", "prompt": "x"}',
    "deep nesting": '{"prompt": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "some nesting": '{"prompt": "x", "seed": ' + "[" * 900 + "]" * 900 + "}",
    "a long number": '{"prompt": "x", "temperature": ' + "9" * 400 + "}",
    "a longer number": '{"prompt": "x", "seed": ' + "9" * 5000 + "}",
    "a long token": '{"prompt_token_ids": [' + "9" * 400 + "]}",
    "a role that is none": '{"messages": [{"role": 5, "content": "x"}]}',
    "a role that is a list": '{"messages": [{"role": ["user"], "content": "x"}]}',
    "messages that are none": '{"messages": {"role": "user"}}',
    "an id that is none": '{"id": {"a": 1}, "prompt": "x"}',
    "infinity": '{"prompt": "x", "rho_low": -Infinity}',
    "a poison policy": '{"prompt": "x", "policy": {"a": []}}',
    "much too long": '{"prompt": "x", "max_new_tokens": 1e300}',
}


def test_no_bad_line_ends_a_run(job: Job) -> None:
    """First time and on resume each is named by its number, and the good ones run."""
    good = json.dumps({"id": "good", "prompt": "x"})
    job.ask(*POISON.values(), good)
    for already in ("1 generated", "0 generated, 1 were there already"):
        result = job()
        assert result.code == 2 and already in result.err and "Traceback" not in result.err
        for number, kind in enumerate(POISON, start=1):
            assert re.search(rf"in\.jsonl:{number}: ", result.err), kind
        assert [line["id"] for line in job.lines] == ["good"]
        assert all(len(line) < 1500 for line in result.err.splitlines())


def test_a_request_that_fails_is_named_by_its_line(
    job: Job, tmp_path: Path, own_parts: None
) -> None:
    plugin = tmp_path / "failing.py"
    plugin.write_text(
        "from rho_eos import Policy, register_policy\n"
        "@register_policy\n"
        "class Failing(Policy):\n"
        "    name = 'failing-at-line-two'\n"
        "    def step(self, canvas, prediction, commit):\n"
        "        raise OverflowError\n"
    )
    job.ask({"prompt": "x"}, {"prompt": "x", "policy": "failing-at-line-two"}, {"prompt": "y"})
    result = job("--plugin", plugin)
    assert result.code == 2 and re.search(r"in\.jsonl:2: request 2: .*OverflowError", result.err)
    assert {line["id"] for line in job.lines} == {"1", "3"}


def test_the_input_is_never_the_output(job: Job) -> None:
    before = job.source.read_bytes()
    link, hard = job.folder / "link.jsonl", job.folder / "hard.jsonl"
    link.symlink_to(job.source)
    hard.hardlink_to(job.source)
    for target in (job.source, link, hard, job.folder / "." / "in.jsonl"):
        job.target = target
        for words in ((), ("--overwrite",)):
            result = job(*words)
            assert result.code == 2 and "the same file" in result.err
    job.target = job.folder / "new.jsonl"
    assert "the same file" in job("--trace-file", job.target).err
    assert job.source.read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [b'{"name": "Ada"}', b'{"id": "r0", "text": "x"}\n{"id": "r1", "text": "y"}', b"a,b\n1,2\n"],
)
def test_a_file_of_somebody_else_is_left_as_it_was(job: Job, content: bytes) -> None:
    job.target.write_bytes(content)
    for words in ((), ("--overwrite",)):
        result = job(*words)
        assert result.code == 2 and "not a result line" in result.err
        assert job.target.read_bytes() == content


def test_pipes_and_devices_are_refused_at_once(job: Job) -> None:
    fifo = job.folder / "fifo"
    os.mkfifo(fifo)
    for source in (fifo, Path("/dev/zero")):
        assert "no regular file" in job(source=source).err
    for target in (fifo, Path("/dev/full"), Path("/dev/zero")):
        job.target = target
        result = job()
        assert result.code == 2 and "no regular file" in result.err


def test_a_full_disk_is_a_sentence_and_what_was_finished_stays(job: Job) -> None:
    """A limit on the size of files cuts a write off like a full disk."""
    assert job("--max-rows", "1").code == 0
    first = job.target.read_bytes().splitlines(keepends=True)[0]
    job.target.write_bytes(first)
    with largest_file(len(first) + 100):
        full = job()
    assert full.code == 1 and "Traceback" not in full.err
    assert f"cannot write {job.target}: File too large" in full.err
    assert job.target.read_bytes() == first
    assert "2 generated, 1 were there already" in job().err


def test_a_full_stdout_is_a_sentence() -> None:
    words = [sys.executable, "-m", "rho_eos", "--version"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == "rho-eos: No space left on device\n"


def test_a_short_limit_alone_shortens_the_first_canvas(
    command: Command, byte_checkpoint: Path, tmp_path: Path
) -> None:
    """The same in every place: Python, the command line, a line of a file."""
    line = json.loads(
        command("generate", "hi", "--json", "-m", byte_checkpoint, "--max-new-tokens", 32).out
    )
    assert line["n_token"] <= 32
    llm = LLM(str(byte_checkpoint))
    [output] = llm.generate("hi", max_new_tokens=32)
    assert output.token_ids == line["token_ids"]
    assert llm.chat([{"role": "user", "content": "hi"}], max_new_tokens=32).text == output.text
    *_, last = llm.stream("hi", max_new_tokens=32)
    assert last.output is not None and last.output.text == output.text
    again = llm.generate("hi", {"max_new_tokens": 48}, max_new_tokens=32)[0]
    assert again.token_ids == output.token_ids

    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"prompt": "hi", "max_new_tokens": 32}\n')
    assert command("generate", "-m", byte_checkpoint, "-i", source, "-o", target).code == 0
    assert json.loads(target.read_text())["token_ids"] == output.token_ids
