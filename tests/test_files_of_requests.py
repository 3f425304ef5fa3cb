"""`generate` from file to file: nothing stale is kept, nothing destroyed, a bad line is named."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rho_eos import LLM
from tests.checkpoints import write_checkpoint
from tests.evals.command import Command, Result
from tests.lines import read_lines, write_lines
from tests.server.plugin import PLUGIN

SHORT = ("--initial-length", "16", "--max-new-tokens", "32")


class Job:
    """`generate` on two files of a folder."""

    def __init__(self, command: Command, folder: Path, model: Path) -> None:
        self.command = command
        self.folder = folder
        self.model = model
        self.source, self.target = folder / "in.jsonl", folder / "out.jsonl"

    def ask(self, *lines: dict[str, Any] | str) -> None:
        write_lines(self.source, lines)

    def __call__(self, *words: object, source: Path | None = None) -> Result:
        files = ("-i", source or self.source, "-o", self.target)
        return self.command("generate", "-m", self.model, *files, *SHORT, *words)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return read_lines(self.target)


@pytest.fixture
def job(command: Command, tmp_path: Path, byte_checkpoint: Path) -> Job:
    job = Job(command, tmp_path, byte_checkpoint)
    job.ask(*({"id": f"r{n}", "prompt": f"number {n}"} for n in range(3)))
    return job


@pytest.mark.parametrize(
    ("words", "difference"),
    [
        (("--temperature", "0.5"), "temperature 0.0, not 0.5"),
        (("--raw",), "another prompt"),
        (("--source",), "'r1' .*another prompt"),
        (("--model",), "another model"),
    ],
)
def test_answers_to_something_else_are_refused_and_kept(
    job: Job, words: tuple[str, ...], difference: str, tmp_path: Path
) -> None:
    assert job().code == 0
    before = job.target.read_bytes()
    if words == ("--source",):
        words = ()
        job.ask({"id": "r0", "prompt": "number 0"}, {"id": "r1", "prompt": "number one"})
    if words == ("--model",):
        words, job.model = (), write_checkpoint(tmp_path / "other", seed=9)
    result = job(*words)
    assert result.code == 2 and re.search(difference, result.err) and "--overwrite" in result.err
    assert job.target.read_bytes() == before
    result = job(*words, "--overwrite")
    assert result.code == 0 and "generated →" in result.err
    assert job.target.read_bytes() != before


def test_steps_are_traced_and_a_continued_run_traces_the_rest(job: Job) -> None:
    trace = job.folder / "trace.jsonl"

    def steps() -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for line in read_lines(trace):
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

    rows: list[dict[str, Any]] = [
        {"id": "a", "prompt": "one, two", "seed": 3, "temperature": 0.5},
        {"id": "b", "prompt": 'a "word"\nand a line', "seed": 0, "temperature": 0.0},
    ]
    table, parquet, text = (job.folder / f"in.{kind}" for kind in ("csv", "parquet", "txt"))
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    pyarrow.parquet.write_table(pyarrow.table(columns), str(parquet))
    job.ask(*rows)
    assert job().code == 0
    for source in (table, parquet):  # the same prompts, the same ids, the same parameters
        assert "0 generated, 2 were there already" in job(source=source).err
    job.target.unlink()
    text.write_bytes("\ufeffnumber 0\r\n\nnumber 2\n".encode())
    job.ask({"id": "1", "prompt": "number 0"}, {"id": "3", "prompt": "number 2"})
    assert job(source=text).code == 0
    assert "0 generated, 2 were there already" in job().err


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
    "deep nesting": '{"prompt": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "a long number": '{"prompt": "x", "temperature": ' + "9" * 400 + "}",
    "a long token": '{"prompt_token_ids": [' + "9" * 400 + "]}",
    "a role that is none": '{"messages": [{"role": 5, "content": "x"}]}',
    "an id that is none": '{"id": {"a": 1}, "prompt": "x"}',
    "infinity": '{"prompt": "x", "rho_low": -Infinity}',
    "a poison policy": '{"prompt": "x", "policy": {"a": []}}',
    "much too long": '{"prompt": "x", "max_new_tokens": 1e300}',
    "half an object": "{broken",
    "an empty prompt": '{"prompt": ""}',
    "an unknown parameter": '{"prompt": "x", "colour": "red"}',
    "no number of samples": '{"prompt": "x", "n": "x"}',
}


def test_no_bad_line_ends_a_run(job: Job) -> None:
    """First time and on resume each is named by its number, and the good ones run."""
    good, twice = {"id": "good", "prompt": "x", "n": 2}, {"id": "good#1", "prompt": "y"}
    job.ask(*POISON.values(), good, twice)
    for already in ("2 generated", "0 generated, 2 were there already"):
        result = job()
        assert result.code == 2 and already in result.err and "Traceback" not in result.err
        for number, kind in enumerate([*POISON, "a sample", "an id twice"], start=1):
            named = re.search(rf"in\.jsonl:{number}: ", result.err)
            assert bool(named) == (kind != "a sample"), kind
        assert "the id 'good#1' was used by an earlier line" in result.err
        assert [line["id"] for line in job.lines] == ["good#0", "good#1"]
        assert all(len(line) < 1500 for line in result.err.splitlines())


def test_a_request_that_fails_is_named_by_its_line(
    job: Job, tmp_path: Path, own_parts: None
) -> None:
    plugin = tmp_path / "faulty.py"
    plugin.write_text(PLUGIN)
    job.ask({"prompt": "x"}, {"prompt": "x", "policy": "faulty", "fault": "step"}, {"prompt": "y"})
    result = job("--plugin", plugin)
    assert result.code == 2 and re.search(r"in\.jsonl:2: request 2: .*RuntimeError", result.err)
    assert {line["id"] for line in job.lines} == {"1", "3"}


def test_the_input_is_never_the_output(job: Job) -> None:
    before = job.source.read_bytes()
    link, hard = job.folder / "link.jsonl", job.folder / "hard.jsonl"
    link.symlink_to(job.source)
    hard.hardlink_to(job.source)
    for target in (job.source, link, hard):
        job.target = target
        result = job("--overwrite")
        assert result.code == 2 and "the same file" in result.err
    job.target = job.folder / "round"
    job.target.symlink_to(job.folder / "and round")
    (job.folder / "and round").symlink_to(job.target)
    result = job("--overwrite")
    assert result.code in (1, 2) and "round: Too many levels" in result.err
    job.target = job.folder / "new.jsonl"
    assert "the same file" in job("--trace-file", job.target).err
    assert job.source.read_bytes() == before


def test_a_full_stdout_is_a_sentence() -> None:
    words = [sys.executable, "-m", "rho_eos", "--version"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == "rho-eos: No space left on device\n"


def test_a_short_limit_alone_shortens_the_first_canvas(job: Job) -> None:
    """The same in every place: Python, the command line, a line of a file."""
    words = ("generate", "hi", "--json", "-m", job.model, "--max-new-tokens", 32)
    line = json.loads(job.command(*words).out)
    assert line["n_token"] <= 32
    [output] = LLM(str(job.model)).generate("hi", {"max_new_tokens": 48}, max_new_tokens=32)
    assert output.token_ids == line["token_ids"]
    job.ask({"prompt": "hi", "max_new_tokens": 32, "initial_length": None})
    assert job.command(*words[:1], "-m", job.model, "-i", job.source, "-o", job.target).code == 0
    assert job.lines[0]["token_ids"] == line["token_ids"]
