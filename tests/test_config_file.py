"""`--config file.yaml` for any command, and completion in a shell."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rho_eos import DecodeParams
from rho_eos.cli import make_app
from tests.evals.command import Command

EXAMPLE = Path(__file__).parents[1] / "examples" / "policy.py"


@pytest.fixture
def config(tmp_path: Path, byte_checkpoint: Path) -> Path:
    path = tmp_path / "options.yaml"
    path.write_text(
        f"model: {byte_checkpoint}\nmax-new-tokens: 24\ninitial_length: 8\npolicy: fixed\n"
        "temperature: 0.5\nblock_length: none\nearly_stop: false\nstop: [one, two]\n"
        "seed: null\njson: true\n"
    )
    return path


def test_options_come_from_the_file_and_the_command_line_wins(
    command: Command, config: Path
) -> None:
    line = json.loads(command("generate", "hello", "--config", config).out)
    assert line["n_token"] == 8  # the fixed length of the file
    line = json.loads(command("generate", "hello", "--config", config, "--initial-length", 4).out)
    assert line["n_token"] == 4
    source, target = config.parent / "in.jsonl", config.parent / "out.jsonl"
    source.write_text('{"prompt": "hello"}\n')
    words = ("-i", source, "-o", target, "--stop", "three", "--early-stop")
    assert command("generate", f"--config={config}", *words).code == 0
    params = json.loads(target.read_text())["params"]
    want = DecodeParams(
        policy="fixed",
        initial_length=8,
        max_new_tokens=24,
        temperature=0.5,
        block_length=None,
        stop=("three",),
    )
    settings = json.loads(want.model_dump_json())  # without a cache, nothing of it is recorded
    assert params == {k: v for k, v in settings.items() if not k.startswith("cache_")}


def test_every_command_takes_one(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text("no_such_option: 1\n")
    names = [each.name or each.callback.__name__ for each in make_app().registered_commands]  # type: ignore[union-attr]
    assert {"serve", "generate", "models", "batch"} <= {name.replace("_", "-") for name in names}
    for name in names:
        if name == "lm-eval":  # it has one of its own
            continue
        result = command(name, "--config", path)
        assert result.code == 2, name
        assert "empty.yaml: " in result.err and "has no option --no-such-option" in result.err, name


def test_a_plugin_in_the_file_brings_its_options(
    command: Command, tmp_path: Path, byte_checkpoint: Path, own_parts: None
) -> None:
    path = tmp_path / "options.yaml"
    path.write_text(
        f"plugin: {EXAMPLE}\npolicy: until-eos\nchunk: 3\n"
        f"model: {byte_checkpoint}\ninitial_length: 5\nmax_new_tokens: 8\n"
    )
    result = command("generate", "hi", "--json", "--config", path)
    assert result.code == 0, result.err
    assert json.loads(result.out)["expansions"] == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("port: [1, 2]", "port is '[1, 2]', but takes an integer"),
        ("ray: maybe", "'--ray'"),
        ("config: other.yaml", "has no option --config"),
        ("- port", "holds no options"),
        ("port: [", "cannot read"),
        (b"\xff\xfe", "cannot read"),
    ],
)
def test_a_bad_file_is_one_sentence(
    command: Command, tmp_path: Path, content: str | bytes, message: str
) -> None:
    path = tmp_path / "options.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    os.mkfifo(tmp_path / "fifo")
    wrong = {path: message, tmp_path / "none": "No such file", tmp_path / "fifo": "regular"}
    for each, said in wrong.items():
        result = command("serve", "--config", each)
        assert result.code == 2 and said in result.err
        assert len(result.err.splitlines()) == 1


def test_a_shell_completes_options() -> None:
    typed = "rho-eos serve --log-l"
    asked = {"_RHO_EOS_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": "2"}
    code = "import sys; sys.argv = ['rho-eos']; from rho_eos.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | asked
    )
    assert "--log-level" in done.stdout.split(), done.stderr
