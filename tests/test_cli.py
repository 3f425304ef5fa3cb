"""The commands as a user meets them: what they print, where, and with which exit code."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from rho_eos.config import EngineConfig
from tests import forks
from tests.evals.command import Run
from tests.lines import read_lines, write_lines
from tests.support import has_content, wait_until
from tests.terminal import Terminal

SHORT = ["--initial-length", "16", "--max-new-tokens", "32"]


def test_help_waits_for_nothing_that_it_does_not_need() -> None:
    heavy = "torch transformers tokenizers huggingface_hub fastapi uvicorn httpx datasets ray"
    code = (
        "import runpy, sys, rho_eos.cluster\nsys.argv = ['rho-eos', '--help']\n"
        "try: runpy.run_module('rho_eos', run_name='__main__')\n"
        f"except SystemExit: sys.stderr.write(str(set('{heavy}'.split()) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stderr, "generate" in done.stdout) == ("set()", True)


def test_generate_prints_the_text_and_json_all_metrics(run: Run, tmp_path: Path) -> None:
    plain = run("generate", "hello", *SHORT)
    line = json.loads(run("generate", "hello", "--json", *SHORT).out)
    assert plain.code == 0 and plain.out == line["text"] + "\n"
    assert run("generate", *SHORT, stdin="hello").out == plain.out
    assert "trace" not in line
    path = tmp_path / "trace.jsonl"
    told = run("generate", "hello", "--json", "--trace", "--trace-file", path, *SHORT).out
    assert [step["step"] for step in read_lines(path)] == list(range(line["nfe"]))
    assert len(json.loads(told)["trace"]) == line["nfe"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["generate", "hi", "--rho-low", "0.9"], "rho_low is 0.9, but takes at most rho_high"),
        (
            ["generate", "hi", "--initial-length", "x"],
            "initial_length is 'x', but takes an integer",
        ),
        (["generate", "hi", "--policy", "asym"], "scout; asym is a preset of rho-eos"),
        (["generate", "hi", "--bogus"], "No such option: --bogus"),
        (["generate", ""], "the prompt is empty"),
        (["generate", "a", "--suffix", "\udcff"], "half a character"),
        (["generate", "--input", "a.jsonl"], "--input and --output go together"),
        (["generate", "hi", "-i", "a", "-o", "b"], "does not go with --input"),
        (["info", "/no/such/folder"], "no such model"),
        (["info", __file__], "which is a file"),
        (["unknown"], "No such command"),
        (["serve", "tiny", "--cache", "window", "--cache-window", "0"], "cache_window is 0"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run: Run, words: list[str], message: str) -> None:
    result = run(*words)
    assert result.code == 2
    # Where the model was loaded first, the line that says how it runs comes before.
    *before, line = result.err.splitlines()
    assert line.startswith("rho-eos: ") and message in line
    assert all("; needs " in each for each in before) and len(before) <= 1
    assert "Traceback" not in result.err and result.out == ""


def test_a_cached_answer_tells_what_it_saved(run: Run) -> None:
    words = ["--policy", "fixed", "--initial-length", 96, "--max-new-tokens", 96]
    line = json.loads(run("generate", "hello", "--json", *words, "--cache", "window").out)
    assert line["positions_evaluated"] < line["positions_exact"]
    assert 0 < line["refreshes"] < line["nfe"]
    watched = run("watch", "hello", *words, "--cache", "window", "--delay", 0).out
    costs = re.findall(r"(\d+) of +(\d+) positions$", watched, re.M)
    assert len(costs) == line["nfe"] and "\x1b" not in watched
    assert sum(int(computed) for computed, _ in costs) == line["positions_evaluated"]
    assert f"{line['positions_exact']:,} without the cache" in watched.splitlines()[-1]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_for_real_nothing_is_lost_or_doubled(
    how: signal.Signals, byte_checkpoint: Path, tmp_path: Path
) -> None:
    lines = ({"id": f"r{n}", "prompt": f"number {n}", "seed": n} for n in range(60))
    source, target = write_lines(tmp_path / "in.jsonl", lines), tmp_path / "out.jsonl"
    command = ["-m", "rho_eos", "generate", "-m", byte_checkpoint]
    command += ["-i", source, "-o", target, "--max-rows", "2", *SHORT]
    with (tmp_path / "err").open("w+b") as said:
        process = forks.Fork(*command, stderr=said.fileno())
        wait_until(lambda: has_content(target), 300)
        process.send_signal(how)
        process.wait(120)
        err = forks.read(said)
    assert "Traceback" not in err
    if how is signal.SIGINT:
        assert process.returncode == 130 and "run the same command again to continue" in err
    done = len(target.read_bytes().splitlines())
    assert 0 < done < 60
    assert forks.run(*command).returncode == 0
    assert sorted(line["id"] for line in read_lines(target)) == sorted(f"r{n}" for n in range(60))


def test_chat_keeps_the_conversation_and_survives_a_turn_that_is_too_long(run: Run) -> None:
    result = run(
        "chat", *SHORT, stdin="hello\n" + "x" * 600 + "\nhello\n/reset\nhello\n/exit\nno\n"
    )
    assert result.code == 0
    assert result.out.count("steps") == 3
    assert "more than the model's context" in result.err
    first, second, third = re.split(r"L \d+ · .*contractions\n", result.out)[:3]
    assert third == f"forgotten: 2 turns\n{first}"
    assert first != second  # the second answer saw the first turn


def test_chat_commands_answer_and_unknown_ones_are_refused(run: Run) -> None:
    answered = ["/help", "/set initial_length 8", "/set max-new-tokens 8", "hello", "/reset"]
    refused = {
        "/sett": "there is no /sett; /help lists what there is",
        "/set colour red": "unknown parameter 'colour'",
        "/set rho_low 7": "rho_low is 7.0, but takes",
    }
    lines = [*answered, *refused, " /etc is said to the model", "/exit"]
    result = run("chat", stdin="\n".join(lines))
    assert result.code == 0
    for shown in ("/set NAME", "max_new_tokens is 8\n", "L 8 · ", "forgotten: 1 turn\n"):
        assert shown in result.out  # the answer was made with what was set
    assert result.out.count(" steps · ") == 2
    complaints = [line for line in result.err.splitlines() if "needs" not in line]
    for line, part in zip(complaints, refused.values(), strict=True):
        assert line.startswith("rho-eos: ") and part in line


def test_chat_takes_texts_of_several_lines_a_system_and_takes_turns_back(
    run: Run, tmp_path: Path
) -> None:
    saved = tmp_path / "talk.json"
    said = ["/system Be brief.", "one \\", "two", '"""', "/three", "", 'four"""', "five", "/undo"]
    said += [f"/save {saved}", f"/save {saved}", "/save", "/system", "/undo", "/undo", "/undo"]
    result = run("chat", *SHORT, stdin="\n".join([*said, "/exit"]))
    assert result.code == 0 and "taken back: five" in result.out
    roles = [(each["role"], each["content"]) for each in json.loads(saved.read_text())]
    assert [each for each in roles if each[0] != "assistant"] == [
        ("system", "Be brief."),
        ("user", "one \ntwo"),
        ("user", "/three\n\nfour"),
    ]
    assert len(roles) == 5 and "nothing was asked yet" in result.out
    assert "File exists" in result.err and "/save takes the name of a file" in result.err


#: The command without a model, which takes long to load and is not asked for anything.
CHAT_ALONE = """
import importlib, sys, types
chat = importlib.import_module("rho_eos.cli.chat")
model = types.SimpleNamespace(tokenizer=True, config=types.SimpleNamespace(model="none"))
chat.load = lambda options: model
sys.exit(chat.chat({}, {}))
"""


def test_chat_has_line_editing_and_a_history(tmp_path: Path) -> None:
    """Lines are edited with keys, come back with the arrow, and are there in the next talk."""
    up, left = "\x1b[A", "\x1b[D"
    first = Terminal("-c", CHAT_ALONE, columns=100, lines=40, home=tmp_path)
    first.wait_for("› ")
    first.type("/set sed 5" + left * 3 + "e\r")  # se|d: the missing letter is put in
    first.wait_until_shown("seed is 5\n›")  # until it listens again, keys are only echoed
    first.type(up + "\x7f7\r")  # the same line again, its last digit replaced
    first.wait_until_shown("seed is 7\n›")
    first.type("/reset\r")
    first.wait_for("forgotten: 0 turns")
    first.type("\x04")
    assert first.wait() == 0
    second = Terminal("-c", CHAT_ALONE, columns=100, lines=40, home=tmp_path)
    second.wait_for("› ")
    second.type(up + up + "\r")
    second.wait_for("seed is 7")
    second.type("/exit\r")
    assert second.wait() == 0
    history = tmp_path / "rho-eos" / "chat_history"
    assert history.read_text().splitlines()[-1] == "/exit"
    assert history.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("columns", [40, 132])
def test_watch_on_a_terminal(columns: int, byte_checkpoint: Path, tmp_path: Path) -> None:
    """A real pseudo-terminal: the panel is drawn, redrawn in place, and as wide as the screen."""
    words = ["rho_eos", "watch", "hello", "-m", byte_checkpoint, "--delay", "0", *SHORT]
    terminal = Terminal("-m", *words, columns=columns, home=tmp_path)
    assert terminal.wait() == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.raw.decode(errors="replace"))
    panel = [line for line in re.split(r"[\r\n]+", plain) if line.startswith(("│", "╭", "╰"))]
    assert "ρ-EOS · step 1" in panel[0]
    assert {cell_len(line) for line in panel} == {columns}
    assert any("MASKs" in line for line in panel) and any("▒" in line for line in panel)
    assert b"\x1b[" in terminal.raw  # it is redrawn in place
    assert "╰" in terminal.shown() and "forwards" in terminal.shown()  # its last frame stays


def test_bare_prints_the_help(run: Run) -> None:
    bare = run()
    assert bare.code == 0 and bare.err == ""
    assert bare.out == run("--help").out and "generate" in bare.out


@pytest.mark.parametrize("name", ["generate", "serve", "eval", "survey"])
def test_help_is_short_and_whole_on_request(
    name: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On 80 columns every name of an option stands uncut in a line."""
    monkeypatch.setenv("COLUMNS", "80")

    def named(page: str) -> set[str]:
        return {word.rstrip(".") for word in page.split() if word[:2] == "--"}

    short, whole = run(name, "--help").out, run(name, "--help-all").out
    assert max(map(cell_len, whole.splitlines())) <= 80
    assert len(short.splitlines()) < 0.8 * len(whole.splitlines())
    assert {"--model", "--help"} <= named(short) - {"--help-all"} < named(whole)
    assert "--help-all" in short
    settings = EngineConfig.model_fields.keys() - {"defaults"}
    assert {f"--{each.replace('_', '-')}" for each in settings} <= named(whole)


def test_published_models_are_listed_with_the_types_that_fit(run: Run) -> None:
    table = run("models").out.partition("Published models")[2]
    [small] = [line for line in table.splitlines() if "Qwen3-0.6B-diffusion-mdlm" in line]
    [large] = [line for line in table.splitlines() if "LLaDA2.0-flash" in line]
    assert "2.2 GiB" in small and large.split()[-4:] == ["–"] * 4  # 200 GB in 16 bit


def test_info_and_models_import_no_modelling_code(byte_checkpoint: Path) -> None:
    code = """
import sys
from rho_eos.cli import main
try: main()
except SystemExit: pass
found = {name.split(".")[-1] for name in sys.modules if ".modeling_" in name}
assert found <= {"modeling_auto", "modeling_rope_utils"}, found
"""
    for words in (["models"], ["info", str(byte_checkpoint)]):
        done = subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
