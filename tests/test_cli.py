"""The commands as a user meets them: what they print, where, and with which exit code."""

import io
import json
import re
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import typer
from rich.cells import cell_len

from rho_eos import LLM, DecodeParams
from rho_eos.cli import make_app
from rho_eos.text.ask import Ask
from rho_eos.views.screen import Screen
from tests import forks
from tests.evals.command import Run
from tests.support import has_content, wait_until
from tests.terminal import Terminal

SHORT = ["--initial-length", "16", "--max-new-tokens", "32"]


def test_help_reads_like_a_manual(run: Run) -> None:
    page = run("--help").out
    assert all(command in page for command in ("generate", "chat", "watch", "info"))
    page = run("generate", "--help").out
    for option in ("--rho-low", "--policy", "--block-length", "--input", "--device", "--json"):
        assert option in page


def test_help_waits_for_nothing_that_it_does_not_need() -> None:
    heavy = "torch transformers tokenizers huggingface_hub fastapi uvicorn httpx datasets ray"
    code = (
        "import runpy, sys\nsys.argv = ['rho-eos', '--help']\n"
        "try: runpy.run_module('rho_eos', run_name='__main__')\n"
        f"except SystemExit: sys.stderr.write(str(set('{heavy}'.split()) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stderr, "generate" in done.stdout) == ("set()", True)


def test_help_says_where_policies_differ(run: Run) -> None:
    told = " ".join(run("generate", "--help").out.replace("│", " ").split())
    assert "commit within one block at a time; none: anywhere [default: 32]; blocks: " in told
    assert "dreamon: MASKs that a gap starts with [default: 8; dreamon: 16]" in told
    assert "klass: commit only candidates more confident than this [default: 0.9]" in told
    assert "stop once the text is complete; same text, fewer steps; --no-early-stop turns" in told
    assert "one of none, window [default: none]" in told


def test_help_cuts_no_name_and_leaves_room_for_sentences(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for command in ("generate", "serve", "eval", "survey", "reproduce", "batch"):
        lines = [line for line in run(command, "--help").out.splitlines() if "│" in line]
        assert not any("…" in line.split("--", 1)[-1].split()[0] for line in lines if "--" in line)
        names = {word for line in lines for word in line.split() if word.startswith("--")}
        app = typer.main.get_command(make_app())
        known = {name for each in app.commands[command].params for name in each.opts}
        assert {name for name in known if name.startswith("--")} <= names, command
        panel = [line for line in lines if re.match(r"│[ *]+--", line)]
        assert max(len(re.split(r" {2,}", line.strip("│ "))[0]) for line in panel) <= 36


@pytest.mark.parametrize("width", [60, 80, 140])
def test_help_fills_the_width_it_has(run: Run, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """No line is broken where the source is: the next word would not have fitted."""
    monkeypatch.setenv("COLUMNS", str(width))
    for words, start in (((), "A masked diffusion model"), (("chat",), "/help lists")):
        lines = [line.strip() for line in run(*words, "--help").out.splitlines()]
        first = next(at for at, line in enumerate(lines) if line.startswith(start))
        paragraph = lines[first : lines.index("", first)]
        for line, after in pairwise(paragraph):
            assert len(line) + 1 + len(after.split()[0]) > width - 2, (line, after)


def test_generate_prints_the_text_and_json_all_metrics(run: Run) -> None:
    plain = run("generate", "hello", *SHORT)
    line = json.loads(run("generate", "hello", "--json", *SHORT).out)
    assert plain.code == 0 and plain.out == line["text"] + "\n"
    assert run("generate", *SHORT, stdin="hello").out == plain.out
    assert {"id", "text", "token_ids", "canvas_token_ids", "finish_reason"} <= set(line)
    assert {"n_token", "e_token", "e_ratio", "nfe", "positions_evaluated"} <= set(line)
    assert {"expansions", "contractions", "adjustments", "tokens_per_forward"} <= set(line)
    assert {"seconds_waiting", "seconds_running"} <= set(line)
    assert "trace" not in line
    assert json.loads(run("generate", "hello", "--json", "--trace", *SHORT).out)["trace"]


def test_trace_file_has_one_line_per_step(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    line = json.loads(run("generate", "hello", "--json", "--trace-file", path, *SHORT).out)
    steps = [json.loads(text) for text in path.read_text().splitlines()]
    assert [step["step"] for step in steps] == list(range(line["nfe"]))
    assert {"length", "masks", "rho", "action", "committed"} <= set(steps[0])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["generate", "hi", "--rho-low", "0.9"], "rho_low is 0.9, but takes at most rho_high"),
        (["generate", "hi", "--threshold", "0"], "threshold is 0.0, but takes a number in (0, 1]"),
        (
            ["generate", "hi", "--initial-length", "x"],
            "initial_length is 'x', but takes an integer",
        ),
        (["generate", "hi", "--preset", "mid"], "preset is 'mid', but takes one of asym, sym"),
        (["generate", "hi", "--policy", "asym"], "scout; asym is a preset of rho-eos"),
        (["generate", "hi", "--initial-length", "4096"], "at most max_new_tokens"),
        (["generate", "hi", "--bogus"], "No such option: --bogus"),
        (["generate", ""], "the prompt is empty"),
        (["generate", "x" * 600], "more than the model's context of 512"),
        (["generate", "--input", "a.jsonl"], "--input and --output go together"),
        (["generate", "hi", "-i", "a", "-o", "b"], "does not go with --input"),
        (["info", "/no/such/folder"], "no such model"),
        (["watch", ""], "the prompt is empty"),
        (["unknown"], "No such command"),
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
    watched = run("watch", "hello", *words, "--cache", "window", "--delay", 0).out.splitlines()
    costs = [re.search(r"(\d+) of +(\d+) positions$", each) for each in watched]
    shown = [tuple(map(int, cost.groups())) for cost in costs if cost]
    assert [len(shown), *map(sum, zip(*shown, strict=True))] == [
        *(line["nfe"], line["positions_evaluated"], line["positions_exact"])
    ]
    last = f"{line['positions_exact']:,} without the cache ({line['refreshes']} refreshes)"
    assert last in watched[-1]
    traced = run("generate", "hello", "--json", "--trace", *words, "--cache", "window").out
    trace = json.loads(traced)["trace"]
    assert sum(step["refresh"] for step in trace) == line["refreshes"]
    assert sum(step["exact"] for step in trace) == line["positions_exact"]


def test_block_length_none_means_anywhere(run: Run) -> None:
    words = ("generate", "hello", "--json", "--policy", "fixed", "--initial-length", "64")
    assert run(*words, "--block-length", "none").code == 0
    assert run(*words, "--block-length", "0").code == 2


def requests(path: Path, count: int) -> Path:
    lines = [{"id": f"r{n}", "prompt": f"number {n}", "seed": n} for n in range(count)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_file_of_prompts_of_every_kind(run: Run, tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [
        {"id": "text", "prompt": "hello"},
        {"messages": [{"role": "user", "content": "hello"}]},
        {"id": "ids", "prompt_token_ids": [7, 8, 9], "policy": "fixed", "initial_length": 8},
    ]
    source.write_text("\n".join(json.dumps(line) for line in lines))
    assert run("generate", "-i", source, "-o", target, *SHORT).code == 0
    by_id = {line["id"]: line for line in read(target)}
    assert set(by_id) == {"text", "2", "ids"}
    assert by_id["text"]["token_ids"] == by_id["2"]["token_ids"]
    assert by_id["ids"]["n_token"] == len(by_id["ids"]["canvas_token_ids"]) == 8


def test_bad_lines_are_named_and_the_good_ones_still_run(run: Run, tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(
        '{"prompt": "good"}\n'
        "{broken\n"
        '{"prompt": ""}\n'
        '{"prompt": "x", "rho_low": 7}\n'
        '{"prompt": "x", "colour": "red"}\n'
        '{"id": "1", "prompt": "twice"}\n'
        '{"prompt": "also good"}\n'
    )
    result = run("generate", "-i", source, "-o", target, *SHORT)
    assert result.code == 2
    assert {line["id"] for line in read(target)} == {"1", "7"}
    for number, message in {
        2: "not JSON",
        3: "the prompt is empty",
        4: "rho_low is 7",
        5: "unknown parameter 'colour'",
        6: "was used by an earlier line",
    }.items():
        assert re.search(rf"in\.jsonl:{number}: .*{message}", result.err)


def test_a_second_run_continues_where_the_first_was_cut_off(run: Run, tmp_path: Path) -> None:
    source, target = requests(tmp_path / "in.jsonl", 6), tmp_path / "out.jsonl"
    whole = tmp_path / "whole.jsonl"
    assert run("generate", "-i", source, "-o", whole, *SHORT).code == 0
    kept = whole.read_bytes().splitlines(keepends=True)
    target.write_bytes(kept[0] + kept[1] + kept[2][:50])  # the third line was being written

    assert run("generate", "-i", source, "-o", target, *SHORT).code == 0
    result = run("generate", "-i", source, "-o", target, *SHORT)
    assert "0 generated, 6 were there already" in result.err
    texts = {line["id"]: line["text"] for line in read(whole)}
    assert {line["id"]: line["text"] for line in read(target)} == texts
    assert len(read(target)) == 6


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_for_real_nothing_is_lost_or_doubled(
    how: signal.Signals, byte_checkpoint: Path, tmp_path: Path
) -> None:
    source, target = requests(tmp_path / "in.jsonl", 60), tmp_path / "out.jsonl"
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
    assert sorted(line["id"] for line in read(target)) == sorted(f"r{n}" for n in range(60))


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
    lines = [
        "/help",
        "/set initial_length 8",
        "/set max-new-tokens 8",
        "hello",
        "/reset",
        "/sett",
        "/set colour red",
        "/set rho_low 7",
        "/set policy fixed",
        "/set rho_low 0.3",
        "/set",
        " /etc is said to the model",
        "/exit",
    ]
    result = run("chat", stdin="\n".join(lines))
    assert result.code == 0
    shown = result.out
    for command in ("/help", "/set NAME [VALUE]", "/reset", "/exit"):
        assert command in shown
    assert "initial_length is 8\n" in shown and "max_new_tokens is 8\n" in shown
    assert "L 8 · " in shown  # the answer was made with what was set
    assert "forgotten: 1 turn\n" in shown and "policy is fixed\n" in shown
    assert "policy fixed" in shown.splitlines()[-3]
    assert shown.count(" steps · ") == 2
    complaints = [line for line in result.err.splitlines() if "needs" not in line]
    for line, part in zip(
        complaints,
        (
            "there is no /sett; /help lists what there is",
            "unknown parameter 'colour'",
            "rho_low is 7.0, but takes",
            "policy fixed has no parameter 'rho_low'",
        ),
        strict=True,
    ):
        assert line.startswith("rho-eos: ") and part in line


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
    first.type("/res\t\r")
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


def test_watch_without_a_terminal_prints_a_line_per_step(run: Run) -> None:
    line = json.loads(run("generate", "hello", "--json", *SHORT).out)
    result = run("watch", "hello", "--delay", "0", *SHORT)
    steps = [text for text in result.out.splitlines() if text.startswith("step")]
    assert result.code == 0 and len(steps) == line["nfe"]
    assert "L   16" in steps[0] and "ρ" in steps[0] and "expand" in steps[0]
    assert f"{line['nfe']} forwards" in result.out
    assert "\x1b" not in result.out


def test_watch_says_what_a_step_found_out(run: Run) -> None:
    result = run("watch", "hello", "--delay", "0", "--policy", "scout", "--max-new-tokens", "300")
    [found] = re.findall(r"^step +1 .*\n +256 MASKs confirm (\d+)%", result.out, re.M)
    assert result.code == 0 and int(found) <= 100


def test_watch_on_a_terminal(byte_checkpoint: Path, tmp_path: Path) -> None:
    """A real pseudo-terminal: the panel is drawn, redrawn in place, and as wide as the screen."""
    words = ["rho_eos", "watch", "hello", "-m", byte_checkpoint, "--delay", "0", *SHORT]
    terminal = Terminal("-m", *words, columns=132, home=tmp_path)
    assert terminal.wait() == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.raw.decode(errors="replace"))
    panel = [line for line in re.split(r"[\r\n]+", plain) if line.startswith(("│", "╭", "╰"))]
    assert "ρ-EOS · step 1" in panel[0]
    assert {cell_len(line) for line in panel} == {132}
    assert any("MASKs" in line for line in panel) and any("▒" in line for line in panel)
    assert b"\x1b[" in terminal.raw  # it is redrawn in place


@pytest.mark.parametrize("columns", [30, 60, 80, 132])
def test_watch_uses_the_width_it_has(columns: int, byte_checkpoint: Path) -> None:
    from rich.console import Console

    llm = LLM(str(byte_checkpoint))
    params = DecodeParams(initial_length=480, max_new_tokens=480)
    [request] = llm.preparer.prepare(Ask("hello", params))
    screen = Screen(llm, request)
    screen.show(next(iter(llm.stream("hello", params))))
    console = Console(width=columns, height=40, file=io.StringIO())
    with console.capture() as drawn:
        console.print(screen.render(columns, 40))
    lines = drawn.get().splitlines()
    assert {cell_len(line) for line in lines} == {columns}
    gauge = next(line for line in lines if "ρ 0" in line)
    assert " 1 " in gauge, "the gauge was broken into two lines"
    assert gauge.count("▒") + gauge.count("─") + gauge.count("█") >= columns // 2 - 4
    assert max(line.count("░") for line in lines) >= columns - 8  # the canvas reaches the border


def test_a_server_may_be_given_the_cache_of_requests_that_do_not_say(run: Run) -> None:
    page = run("serve", "--help").out
    assert "--cache " in page and "--cache-window" in page and "--defaults" not in page
    for words in (("--cache", "x"), ("--cache", "window", "--cache-window", "0")):
        refused = run("serve", "tiny", "--port", "0", *words)
        assert refused.code == 2 and words[-2][2:].replace("-", "_") + " is " in refused.err


def test_bare_prints_the_help(run: Run) -> None:
    bare = run()
    assert bare.code == 0 and bare.err == ""
    assert bare.out == run("--help").out and "generate" in bare.out


def test_info_describes_a_checkpoint_without_loading_it(run: Run, byte_checkpoint: Path) -> None:
    page = run("info", byte_checkpoint).out
    for words in (
        r"family +llada",
        r"MASK +2  <\|mdm_mask\|>",
        r"EOS +1  <\|endoftext\|>",
        r"end of turn +5",
        r"chat template +yes",
        r"context +512",
        r"float32",
    ):
        assert re.search(words, page), page


def test_version(run: Run) -> None:
    from rho_eos import __version__

    assert run("--version").out == f"rho-eos {__version__}\n"
