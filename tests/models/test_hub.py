"""The real Hub client against a small Hub of our own: fetching, resuming, revisions, offline."""

import os
import pty
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from huggingface_hub import constants

from rho_eos.config import EngineConfig
from rho_eos.evals.runs.provenance import model_identity
from rho_eos.models.loading import open_checkpoint
from rho_eos.text.preparation import Preparer
from tests.hub import TOKEN, Asked, Hub, Repo
from tests.models.conftest import GENERATE, MODEL, Run, without_placement

HEADER = 100_001  # bytes that the client asks for to read the header of a weight file


def weights_of(repo: Repo) -> dict[str, bytes]:
    (files,) = repo.commits.values()
    return {name: files[name] for name in sorted(files) if name.endswith(".safetensors")}


def test_info_fetches_headers_and_generate_the_weights(hub: Hub, run: Run, cache: Path) -> None:
    weights = weights_of(hub.repos[MODEL])
    total = sum(map(len, weights.values()))
    info = run("info", MODEL)
    assert info.code == 0 and info.err == ""
    assert f"in {len(weights)} file(s), {len(weights)} of them not fetched yet" in info.out
    assert hub.weights_sent() <= len(weights) * HEADER < total / 4
    assert not list(cache.rglob("*.safetensors"))
    hub.log.clear()
    generated = run(*GENERATE, MODEL)
    assert (generated.code, generated.err) == (0, "")
    assert total <= hub.weights_sent() <= total + len(weights) * HEADER
    hub.log.clear()
    assert run(*GENERATE, MODEL)[:3] == generated[:3]
    assert hub.weights_sent() == 0
    assert "not fetched" not in run("info", MODEL).out


def test_what_info_says_is_the_same_before_and_after(hub: Hub, run: Run, sharded: Path) -> None:
    config = EngineConfig(model=MODEL)
    remote, before = open_checkpoint(config), model_identity(config)
    local = open_checkpoint(EngineConfig(model=str(sharded)))
    for field in ("parameters", "stored_bytes", "stored_dtypes", "special"):
        assert getattr(remote, field) == getattr(local, field)
    texts = [Preparer(each, config).detokenize([72, 101]) for each in (remote, local)]
    assert texts[0] == texts[1]
    assert run(*GENERATE, MODEL).code == 0
    assert model_identity(config) == before  # a run on a cluster goes on here, and the reverse
    assert before["revision"] == hub.repos[MODEL].names["main"]


def test_the_driver_of_a_cluster_fetches_no_weights(hub: Hub, cache: Path) -> None:
    ray_data = pytest.importorskip("rho_eos.cluster.ray_data")
    options = ray_data._same_everywhere({"model": MODEL})
    assert ray_data.Pool(options, actors=1, gpus=0).executor.preparer.tokenizer is not None
    assert options["dtype"] == "float32"
    assert options["revision"] == hub.repos[MODEL].names["main"]  # actors start later
    assert not list(cache.rglob("*.safetensors"))
    assert {asked.range for asked in hub.asked_for("/blob/")} == {f"bytes=0-{HEADER - 1}"}


def downloads(hub: Hub) -> list[Asked]:
    """What was asked for of weights beside their headers."""
    return [asked for asked in hub.asked_for("/blob/") if asked.range != f"bytes=0-{HEADER - 1}"]


def test_a_cut_connection_is_continued_in_the_same_run(hub: Hub, run: Run) -> None:
    weights = weights_of(hub.repos[MODEL])
    hub.cuts = [*[HEADER] * len(weights), 300_000]
    assert run(*GENERATE, MODEL).code == 0
    assert hub.cuts == []
    asked = downloads(hub)
    assert sorted(str(each.range) for each in asked if each.range) == ["bytes=300000-"]
    assert sum(each.sent for each in asked) == sum(map(len, weights.values()))


def test_a_second_run_asks_only_for_files_that_are_not_whole(hub: Hub, run: Run) -> None:
    """The first file arrives, and then nothing does."""
    weights = list(weights_of(hub.repos[MODEL]).values())
    hub.cuts = [*[HEADER] * len(weights), 10**9, *[0] * 100]
    broken = run(*GENERATE, MODEL)
    assert broken.code == 2 and broken.seconds < 60
    assert "run the same command again" in broken.err and broken.err.count("\n") == 1
    (whole,) = (asked.path for asked in downloads(hub) if asked.sent)
    hub.cuts.clear()
    hub.log.clear()
    assert run(*GENERATE, MODEL).code == 0
    asked = downloads(hub)
    assert len(asked) == len(weights) - 1 and whole not in {each.path for each in asked}


def test_revisions(hub: Hub, run: Run, byte_checkpoint: Path) -> None:
    repo = hub.repos[MODEL]
    ((main, _),) = repo.commits.items()
    other = Repo.of(byte_checkpoint)
    repo.commits |= other.commits
    (commit,) = other.commits
    repo.names |= {"v1": commit, "feature/small": commit}
    for revision in ("v1", "feature/small", commit):
        assert "width 32," in run("info", MODEL, "--revision", revision).out
    for revision in ("main", main):
        assert "width 256," in run("info", MODEL, "--revision", revision).out
    wrong = run("info", MODEL, "--revision", "v9")
    assert wrong.code == 2 and f"{MODEL} has no revision 'v9'" in wrong.err


def test_a_branch_that_moves_on_is_followed(hub: Hub, run: Run, byte_checkpoint: Path) -> None:
    assert "width 256," in run("info", MODEL).out
    other = Repo.of(byte_checkpoint)
    hub.repos[MODEL].commits |= other.commits
    hub.repos[MODEL].names |= other.names
    assert "width 32," in run("info", MODEL).out


def test_a_token_goes_to_the_hub_and_not_to_its_storage(
    hub: Hub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repos[MODEL].gated = hub.repos[MODEL].private = True
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert run(*GENERATE, MODEL).code == 0
    assert {asked.token for asked in hub.asked_for("/resolve/")} == {TOKEN}
    assert {asked.token for asked in hub.asked_for("/blob/")} == {None}


def test_offline_what_is_in_the_cache_is_used(
    hub: Hub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for words in (("info", MODEL), (*GENERATE, MODEL, "--revision", "v2")):
        nothing = run(*words)
        assert nothing.code == 2 and nothing.err.count("\n") == 1
        assert "nor in the cache" in nothing.err and "HF_HUB_OFFLINE" in nothing.err
    assert hub.log == []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert run("info", MODEL).code == 0
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    small = run(*GENERATE, MODEL)
    assert small.code == 2
    assert "model-00001-of" in small.err and "is not in the cache, and HF_HUB_OFFLINE" in small.err
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    online = run(*GENERATE, MODEL)
    hub.log.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert run(*GENERATE, MODEL)[:3] == online[:3]
    assert hub.log == []


def test_a_hub_that_cannot_be_reached_leaves_the_cache(
    hub: Hub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    online = run(*GENERATE, MODEL)
    hub.broken = ("/", 503)
    assert run(*GENERATE, MODEL)[:3] == online[:3]
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert run(*GENERATE, MODEL)[:3] == online[:3]


@pytest.fixture
def environment(hub: Hub, tmp_path: Path) -> dict[str, str]:
    """What a user would set for a process of its own."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return plain | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")}


def test_on_a_terminal_there_is_a_bar(hub: Hub, environment: dict[str, str]) -> None:
    controller, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 100))
    with subprocess.Popen(
        [sys.executable, "-m", "rho_eos", *GENERATE, MODEL],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=terminal,
    ) as process:
        os.close(terminal)
        shown = b""
        try:
            while piece := os.read(controller, 4096):
                shown += piece
        except OSError:  # the other side is closed
            pass
        assert process.wait(120) == 0, shown
    os.close(controller)
    assert b"100%" in shown


def test_in_a_pipe_there_is_no_progress(hub: Hub, environment: dict[str, str]) -> None:
    """And the variables that a user sets reach the client."""
    command = [sys.executable, "-m", "rho_eos", *GENERATE, MODEL]
    hub.cuts = [*[HEADER] * len(weights_of(hub.repos[MODEL])), 1000]
    first = subprocess.run(command, env=environment, capture_output=True, timeout=120)
    assert (first.returncode, without_placement(first.stderr.decode())) == (0, "")
    hub.log.clear()
    offline = environment | {"HF_HUB_OFFLINE": "1"}
    second = subprocess.run(command, env=offline, capture_output=True, timeout=120)
    assert (second.returncode, second.stdout) == (0, first.stdout)
    assert without_placement(second.stderr.decode()) == ""
    assert hub.log == []
