"""`rho-eos watch` on a block diffusion model: which block is open, which are finished."""

import re
from pathlib import Path

import pytest
from rich.console import Console

from rho_eos import LLM
from rho_eos.text.ask import Ask
from rho_eos.views.screen import Screen
from tests.checkpoints import write_checkpoint
from tests.evals.command import Run
from tests.terminal import Terminal

BLOCK = 16
LENGTH = 40


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("byte-blocks"), block_length=BLOCK)


def test_a_terminal_names_the_open_block(checkpoint: Path, tmp_path: Path) -> None:
    words = ["rho_eos", "watch", "hello", "-m", checkpoint, "--max-new-tokens", LENGTH]
    terminal = Terminal("-m", *words, "--delay", "0", columns=80, home=tmp_path)
    assert terminal.wait() == 0, terminal.shown()
    found = re.findall(r"step \d+ · block (\d+)–(\d+), (\d+) kept", terminal.raw.decode())
    blocks = list(dict.fromkeys(tuple(map(int, each)) for each in found))
    assert len(blocks) > 2
    firsts, ends, kept = zip(*blocks, strict=True)
    # One begins behind the other, what stands before it is kept, and all but the first are whole.
    assert kept == (0, *ends[:-1]) and firsts == tuple(count + 1 for count in kept)
    assert {end - first + 1 for first, end in zip(firsts[1:], ends[1:], strict=True)} == {BLOCK}
    shown = terminal.shown()
    assert f"Nothing behind position {LENGTH} is returned." in terminal.raw.decode()
    assert "without the cache" in shown and "refresh" not in shown


def test_kept_tokens_are_dim_and_those_of_the_open_block_are_not(checkpoint: Path) -> None:
    llm, params = LLM(str(checkpoint)), {"max_new_tokens": LENGTH}
    [request] = llm.preparer.prepare(Ask("hello", params))
    screen, console = Screen(llm, request), Console(width=300)
    for event in llm.stream("hello", params):
        screen.show(event)
        lines = console.render_lines(screen.render(300, 40))
        canvas = [each for line in lines[5:-1] for each in line if each.text.strip(" │░")]
        dim = [bool(each.style and each.style.dim) for each in canvas]
        assert dim == sorted(dim, reverse=True), "what is finished stands before what is open"
        assert event.record.block is not None
        assert any(dim) == (event.record.block[0] > 0) and not all(dim)


def test_a_pipe_is_told_the_block_in_each_line(checkpoint: Path, run: Run) -> None:
    result = run("watch", "hello", "--delay", "0", "--max-new-tokens", LENGTH, model=checkpoint)
    lines = [line for line in result.out.splitlines() if line.startswith("step")]
    assert len(lines) > 3 and all(re.search(r"block \d+–\d+, \d+ kept$", line) for line in lines)
