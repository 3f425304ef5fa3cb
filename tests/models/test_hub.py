"""The real Hub client against a small Hub of our own: what it fetches, and what is refused."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import constants

from rho_eos.config import EngineConfig
from rho_eos.evals.runs.provenance import model_identity
from rho_eos.models.loading import open_checkpoint
from rho_eos.text.preparation import Preparer
from tests.hub import TOKEN, Asked, Hub, Repo
from tests.models.conftest import GENERATE, MODEL, Run, refused, without_placement

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
    assert run(*GENERATE, MODEL) == generated
    assert hub.weights_sent() == 0
    assert "not fetched" not in run("info", MODEL).out


def test_what_info_says_is_the_same_before_and_after(hub: Hub, run: Run, sharded: Path) -> None:
    config = EngineConfig(model=MODEL)
    remote, before = open_checkpoint(config), model_identity(config)
    local = open_checkpoint(EngineConfig(model=str(sharded)))
    for field in ("parameters", "stored_bytes", "stored_dtypes", "special"):
        assert getattr(remote, field) == getattr(local, field)
    texts = [Preparer(each, config).encoder.decode([72, 101]) for each in (remote, local)]
    assert texts[0] == texts[1]
    assert run(*GENERATE, MODEL).code == 0
    assert model_identity(config) == before  # a run on a cluster goes on here, and the reverse
    assert before["revision"] == hub.repos[MODEL].names["main"]


def test_the_driver_of_a_cluster_fetches_no_weights(hub: Hub, cache: Path) -> None:
    ray_data = pytest.importorskip("rho_eos.cluster.ray_data")
    options = ray_data._same_everywhere({"model": MODEL})
    assert ray_data.Pool(options, actors=1, gpus=0).executor.preparer.encoder.tokenizer is not None
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
    assert "run the same command again" in refused(run, *GENERATE, MODEL)
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
    assert f"{MODEL} has no revision 'v9'" in refused(run, "info", MODEL, "--revision", "v9")
    assert "width 256," in run("info", MODEL).out
    repo.names["main"] = commit  # the branch moves on, and is followed
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
        nothing = refused(run, *words)
        assert "nor in the cache" in nothing and "HF_HUB_OFFLINE" in nothing
    assert hub.log == []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert run("info", MODEL).code == 0
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    small = refused(run, *GENERATE, MODEL)
    assert "model-00001-of" in small and "is not in the cache, and HF_HUB_OFFLINE" in small
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    online = run(*GENERATE, MODEL)
    hub.log.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert run(*GENERATE, MODEL) == online
    assert hub.log == []


def test_a_hub_that_cannot_be_reached_leaves_the_cache(
    hub: Hub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    online = run(*GENERATE, MODEL)
    hub.broken = ("/", 503)
    assert run(*GENERATE, MODEL) == online
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert run(*GENERATE, MODEL) == online


def test_on_a_terminal_there_is_a_bar(hub: Hub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert "100%" in run(*GENERATE, MODEL).err


def test_in_a_pipe_there_is_no_progress(hub: Hub, tmp_path: Path) -> None:
    """And the variables that a user sets reach the client."""
    command = [sys.executable, "-m", "rho_eos", *GENERATE, MODEL]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment = plain | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")}
    hub.cuts = [*[HEADER] * len(weights_of(hub.repos[MODEL])), 1000]
    first = subprocess.run(command, env=environment, capture_output=True, timeout=120)
    assert (first.returncode, without_placement(first.stderr.decode())) == (0, "")
    hub.log.clear()
    offline = environment | {"HF_HUB_OFFLINE": "1"}
    second = subprocess.run(command, env=offline, capture_output=True, timeout=120)
    assert (second.returncode, second.stdout) == (0, first.stdout)
    assert without_placement(second.stderr.decode()) == ""
    assert hub.log == []


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("someone/gated", "is gated: accept its licence on {url}/someone/gated, and log in with"),
        ("someone/private", "not on the Hub either (if it is private, log in with `hf auth login`"),
        ("someone/nothing", "no such model: 'someone/nothing' is no local folder, and not on"),
        ("GSAI-ML/LLaDA-8B-Instuct", "did you mean GSAI-ML/LLaDA-8B-Instruct?"),
        ("LLaDA-8B-Instruct", "did you mean GSAI-ML/LLaDA-8B-Instruct?"),
        ("dream-v0-instruct-7b", "did you mean Dream-org/Dream-v0-Instruct-7B?"),
        ("someone/empty", "someone/empty has no config.json on the Hub, so it is no checkpoint"),
        ("someone/pickled", "has no model.safetensors on the Hub (weights are read from safet"),
        ("some one/--", "'some one/--' is neither a folder nor a Hub id"),
    ],
)
def test_what_is_refused(hub: Hub, run: Run, sharded: Path, model: str, sentence: str) -> None:
    plain = {"config.json": (sharded / "config.json").read_bytes(), "pytorch_model.bin": b"0"}
    hub.repos |= {
        "someone/gated": Repo.of(sharded, gated=True),
        "someone/private": Repo.of(sharded, private=True),
        "someone/empty": Repo({"a" * 40: {"README.md": b"#"}}, {"main": "a" * 40}),
        "someone/pickled": Repo({"b" * 40: plain}, {"main": "b" * 40}),
    }
    assert sentence.format(url=hub.url) in refused(run, "info", model)


def test_tokens_that_do_not_help(hub: Hub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert "the Hub does not accept your token" in refused(run, "info", MODEL)
    hub.repos[MODEL].gated = True
    monkeypatch.setenv("HF_TOKEN", "hf_stranger")
    assert f"{MODEL} is gated: accept its licence" in refused(run, "info", MODEL)


@pytest.mark.parametrize(
    ("trouble", "sentence"),
    [
        *(({"broken": ("/api/", status)}, str(status)) for status in (403, 429, 500)),
        ({"broken": ("/api/", 200)}, "is no Hub"),  # such as a login page
        ({"cuts": [10] * 20}, "cannot be reached"),  # in the headers, which are all that is read
        ({"silent": "/api/"}, "cannot be reached"),
        ({"silent": "/blob/"}, "cannot be reached"),
    ],
)
def test_a_hub_in_trouble(
    hub: Hub, run: Run, monkeypatch: pytest.MonkeyPatch, trouble: dict[str, Any], sentence: str
) -> None:
    monkeypatch.setattr("rho_eos.models.hub.ANSWER_SECONDS", 1.0)
    for name, value in trouble.items():
        setattr(hub, name, value)
    assert sentence in refused(run, "info", MODEL)


def test_no_network(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    said = refused(run, "info", MODEL)
    assert said.startswith("rho-eos: the Hub at http://127.0.0.1:9 cannot be reached")


def test_a_disk_without_room(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    full = SimpleNamespace(free=2**20)
    monkeypatch.setattr("rho_eos.models.hub.shutil.disk_usage", lambda _: full)
    assert "set HF_HOME to a folder on a larger disk" in refused(run, *GENERATE, MODEL)


def test_small_files_that_do_not_come_leave_no_half_of_a_model(
    hub: Hub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its tokenizer a model would be taken for one that has none."""
    hub.broken = ("/tokenizer.json", 500)
    assert "answers with error 500" in refused(run, "info", MODEL)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "nor in the cache" in refused(run, "info", MODEL)
