"""What a Hub refuses or fails to give: one sentence, exit code 2, in bounded time."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import constants

from rho_eos.models.known import PUBLISHED, suggestion
from tests.hub import Hub, Repo
from tests.models.conftest import GENERATE, MODEL, Run


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (
            "someone/gated",
            "someone/gated is gated: accept its licence on {url}/someone/gated, and ",
        ),
        ("someone/gated", "log in with `hf auth login` or set HF_TOKEN"),
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
    refused = run("info", model)
    assert refused.code == 2 and refused.out == "" and refused.seconds < 30
    assert sentence.format(url=hub.url) in refused.err
    assert refused.err.startswith("rho-eos: ") and refused.err.count("\n") == 1


def test_tokens_that_do_not_help(hub: Hub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    wrong = run("info", MODEL)
    assert wrong.code == 2 and "the Hub does not accept your token" in wrong.err
    hub.repos[MODEL].gated = True
    monkeypatch.setenv("HF_TOKEN", "hf_stranger")
    stranger = run("info", MODEL)
    assert stranger.code == 2 and f"{MODEL} is gated: accept its licence" in stranger.err


@pytest.mark.parametrize("status", [403, 429, 500])
def test_a_hub_in_trouble(hub: Hub, run: Run, status: int) -> None:
    hub.broken = ("/api/", status)
    trouble = run("info", MODEL)
    assert trouble.code == 2 and str(status) in trouble.err and trouble.err.count("\n") == 1
    assert trouble.seconds < 30


def test_no_network(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    nobody = run("info", MODEL)
    assert nobody.code == 2 and nobody.seconds < 30
    assert "the Hub at http://127.0.0.1:9 cannot be reached" in nobody.err
    assert nobody.err.count("\n") == 1


def test_weights_that_break_off_while_only_headers_are_read(hub: Hub, run: Run) -> None:
    hub.cuts = [10] * 20
    broken = run("info", MODEL)
    assert broken.code == 2 and broken.err.count("\n") == 1 and broken.seconds < 30


def test_a_disk_without_room(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    full = SimpleNamespace(free=2**20)
    monkeypatch.setattr("rho_eos.models.hub.shutil.disk_usage", lambda _: full)
    refused = run(*GENERATE, MODEL)
    assert refused.code == 2 and "set HF_HOME to a folder on a larger disk" in refused.err
    assert refused.err.count("\n") == 1


@pytest.mark.parametrize("silent", ["/api/", "/blob/"])
def test_a_hub_that_never_answers(
    hub: Hub, run: Run, monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    monkeypatch.setattr("rho_eos.models.hub.ANSWER_SECONDS", 1.0)
    hub.silent = silent
    silence = run("info", MODEL)
    assert silence.code == 2 and "cannot be reached" in silence.err and silence.seconds < 30
    assert silence.err.count("\n") == 1


def test_a_login_page_in_place_of_a_hub(hub: Hub, run: Run) -> None:
    hub.broken = ("/api/", 200)
    page = run("info", MODEL)
    assert page.code == 2 and f"what answers at {hub.url} is no Hub" in page.err


def test_small_files_that_do_not_come_leave_no_half_of_a_model(
    hub: Hub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its tokenizer a model would be taken for one that has none."""
    hub.broken = ("/tokenizer.json", 500)
    half = run("info", MODEL)
    assert half.code == 2 and "answers with error 500" in half.err and half.seconds < 60
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "nor in the cache" in run("info", MODEL).err


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        *((each.partition("/")[2], each) for each in PUBLISHED),
        *((each.lower(), each) for each in PUBLISHED),
        ("GSAI/LLaDA-1.5", "GSAI-ML/LLaDA-1.5"),
        ("someone/DiffuCoder-7B-cpGPRO", "apple/DiffuCoder-7B-cpGRPO"),
        ("bert-base-uncased", None),
        ("someone/something", None),
        ("./folder", None),
        ("GSAI-ML/LLaDA-1.5", None),  # it is right already
    ],
)
def test_suggestions(given: str, meant: str | None) -> None:
    assert suggestion(given) == meant
