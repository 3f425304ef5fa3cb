"""Generating and evaluating on a real local Ray cluster, with an actor killed in the middle."""

import json
import os
import pickle
import shutil
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import psutil
import pytest

from rho_eos import DecodeParams
from tests import forks
from tests.evals.command import Command
from tests.lines import write_lines

PROMPTS = 12
ROOT = Path(__file__).parents[2]
# 64 forwards each, so that a kill after the first lines comes in the middle of others.
DECODING = ("--policy", "fixed", "--initial-length", "192", "--steps", "64", "--max-rows", "2")


def _lines(path: Path) -> list[dict[str, Any]]:
    """The complete ones, of a file that may be growing."""
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    return [json.loads(line) for line in whole.splitlines()]


def _texts(path: Path) -> dict[str, str]:
    lines = _lines(path)
    assert len({line["id"] for line in lines}) == len(lines), "an id is there twice"
    return {line["id"]: line["text"] for line in lines}


def _actors() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            name = " ".join(process.cmdline()[:1])
        except psutil.Error:
            continue
        if name.startswith("ray::") and "EngineActor" in name:
            found.append(process)
    return found


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    rows = [{"id": f"p{number}", "prompt": f"question {number}"} for number in range(PROMPTS)]
    return write_lines(path, rows)


def test_a_killed_actor_loses_and_doubles_nothing(
    cluster: str, byte_checkpoint: Path, prompts: Path, tmp_path: Path, command: Command
) -> None:
    words = ["generate", "--model", byte_checkpoint, "--input", prompts, *DECODING]
    assert command(*words, "--output", tmp_path / "local.jsonl").code == 0
    wants = _texts(tmp_path / "local.jsonl")
    assert len(wants) == PROMPTS

    out = tmp_path / "ray.jsonl"
    line = [*words, "--output", out, "--ray", cluster, "--ray-actors", "2"]
    with (tmp_path / "err").open("w+b") as complaints:
        run = forks.Fork("-m", "rho_eos", *line, stderr=complaints.fileno())
        while len(_lines(out)) < 2:
            assert run.poll() is None, forks.read(complaints)
            time.sleep(0.02)
        before = _actors()
        os.kill(before[0].pid, signal.SIGKILL)
        at_the_kill = len(_lines(out))
        assert run.wait(600) == 0, forks.read(complaints)
    assert len(before) == 2
    assert at_the_kill < PROMPTS - 2, "everything was done before the kill"
    assert _texts(out) == wants

    half = out.read_text().splitlines(keepends=True)[: PROMPTS // 2]
    out.write_text("".join(half))  # what Ray began, one machine finishes
    assert command(*words, "--output", out).code == 0
    assert _texts(out) == wants


@pytest.mark.usefixtures("cluster")
def test_eval_on_ray_continues_what_was_begun_without(tmp_path: Path, command: Command) -> None:
    words = ["eval", "--tasks", "tiny-gsm", "--limit", "4", "--max-new-tokens", "64"]
    assert command(*words, "--out", tmp_path / "local").code == 0
    wants = _texts(tmp_path / "local" / "samples.jsonl")
    shutil.copytree(tmp_path / "local", tmp_path / "ray")
    samples = tmp_path / "ray" / "samples.jsonl"
    samples.write_text(samples.read_text().splitlines(keepends=True)[0])
    from ray.util.annotations import RayDeprecationWarning

    with warnings.catch_warnings():  # what the next Ray drops must not be used
        warnings.simplefilter("error", RayDeprecationWarning)
        done = command(*words, "--out", tmp_path / "ray", "--ray")
    assert done.code == 0, done.err
    assert _texts(samples) == wants


def test_a_request_that_kills_its_actor_again_and_again_is_given_up(cluster: str) -> None:
    """Its sixth death is the last: as often as it was begun before, nobody has answered it."""
    import ray

    from rho_eos.cluster import Attempts
    from rho_eos.cluster.ray_data import EngineActor
    from tests.requests import request as request_for

    attempts = ray.remote(Attempts).remote()
    actor = EngineActor({"model": "tiny"}, attempts)
    block = {"request": [pickle.dumps(request_for("a", [5], DecodeParams(initial_length=8)))]}
    ends = [pickle.loads(actor(block)["output"][0]) for _ in range(7)]
    assert {each.finish_reason for each in ends[:6]} <= {"stop", "length"}
    assert ends[6].finish_reason == "error"
    assert ends[6].error == "the actor died 6 times while it was decoded"


def test_a_policy_from_outside_reaches_the_actors(
    cluster: str, byte_checkpoint: Path, prompts: Path, tmp_path: Path
) -> None:
    """In processes of their own: the actors must import the file themselves."""
    example = Path("examples") / "policy.py"  # relative to where the command is run
    chosen = ["--policy", "until-eos", "--initial-length", "8", "--max-new-tokens", "24"]
    words = ["generate", "--model", byte_checkpoint, "--input", prompts, "--plugin", example]
    texts = []
    for more in ([], ["--ray", cluster, "--ray-actors", "1"]):
        out = tmp_path / f"{len(more)}.jsonl"
        line = [*words, *chosen, "--output", out, *more]
        done = forks.run("-m", "rho_eos", *line, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        texts.append(_texts(out))
    assert texts[0] == texts[1]
    refused = forks.run("-m", "rho_eos", *line, "--rho-low", "0.3", cwd=ROOT)
    assert refused.returncode == 2
    assert "policy until-eos has no parameter 'rho_low'" in refused.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--ray", "127.0.0.1:1"], "no Ray cluster answers at 127.0.0.1:1"),
        (["--ray", "nonsense"], "--ray is 'nonsense', but takes HOST:PORT"),
        (["--ray", "--ray-actors", "0"], "ray-actors is 0"),
        (["--ray-actors", "2"], "--ray-actors goes with --ray"),
    ],
)
def test_what_cannot_run_is_one_sentence(
    words: list[str], complaint: str, prompts: Path, tmp_path: Path, command: Command
) -> None:
    done = command("generate", "--input", prompts, "--output", tmp_path / "out", *words)
    assert done.code == 2
    assert complaint in done.err
    assert done.err.count("\n") == 1
