"""Adapters where users meet them: commands, the Hub, records of runs, the server, merged models."""

import json
from pathlib import Path

import pytest
from safetensors import safe_open
from starlette.testclient import TestClient

from rho_eos import LLM
from rho_eos.config import EngineConfig
from rho_eos.evals.runs.provenance import model_hash, model_identity
from rho_eos.evals.runs.tidy import tidy_rows
from rho_eos.lm_eval.arguments import read_model_args
from rho_eos.models.known import EMBEDDED
from rho_eos.models.loading import open_checkpoint
from rho_eos.server.app import create_app
from rho_eos.server.config import ServerConfig
from rho_eos.server.service import Service
from tests.evals.command import Command
from tests.hub import Hub, Repo
from tests.models.conftest import GENERATE, MODEL, Run, refused
from tests.models.parity import PARITY, changed
from tests.peft_adapters import (
    IDS,
    as_llada_names_it,
    close,
    load,
    logits_of,
    make_adapter,
    rewritten,
)

ADAPTER = "someone/lora"


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory, sharded: Path) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    make_adapter(folder / "ours", sharded, r=8)
    return as_llada_names_it(folder / "ours", folder / "theirs")


def test_one_on_the_hub_is_fetched_when_the_model_is_loaded(
    hub: Hub, run: Run, cache: Path, adapter: Path
) -> None:
    repo = hub.repos[ADAPTER] = Repo.of(adapter)
    commit = repo.names["main"]
    info = run("info", MODEL, "--adapter", ADAPTER)
    assert f"adapter        {ADAPTER} ({commit[:8]}), rank 8" in info.out
    assert not list(cache.rglob("*.safetensors"))
    plain = run(*GENERATE, MODEL)
    adapted = run(*GENERATE, MODEL, "--adapter", ADAPTER)
    assert adapted.code == 0 and adapted.out != plain.out
    assert run(*GENERATE, MODEL, "--adapter", f"{ADAPTER}@{commit}").out == adapted.out
    assert run(*GENERATE, MODEL, "--adapter", str(adapter)).out == adapted.out
    assert "no revision 'v9'" in refused(run, "info", MODEL, "--adapter", f"{ADAPTER}@v9")
    assert "no such adapter" in refused(run, "info", MODEL, "--adapter", "someone/else")


def test_it_is_part_of_the_record_of_a_run(adapter: Path, sharded: Path, tmp_path: Path) -> None:
    copy = rewritten(adapter, tmp_path / "copy")
    other = rewritten(
        adapter, tmp_path / "other", change=lambda config: config.update(lora_alpha=1)
    )
    plain, *with_one = (
        EngineConfig(model=str(sharded), adapter=list(map(str, each)))
        for each in ([], [adapter], [copy], [other])
    )
    first, same, rescaled = map(model_hash, with_one)
    assert first == same  # wherever it lies
    assert len({model_hash(plain), first, rescaled}) == 3
    assert model_identity(with_one[0])["adapters"][0]["adapter"] == "theirs"
    assert "adapters" not in model_identity(plain)


def test_the_server_says_which_it_has(adapter: Path, sharded: Path) -> None:
    llm = LLM(str(sharded), adapter=str(adapter))
    app = create_app(Service(llm, ServerConfig(allowed_host=["testserver"])))
    [model] = TestClient(app).get("/v1/models").json()["data"]
    identity = open_checkpoint(llm.config).adapters[0].identity
    assert model["adapters"] == [{"adapter": "theirs", "weights": identity}]


def test_lm_eval_takes_its_own_name_for_it() -> None:
    for name in ("peft", "adapter"):
        assert read_model_args({"pretrained": "tiny", name: "a/b"}).engine["adapter"] == "a/b"


def test_actors_of_a_cluster_load_the_same(hub: Hub, cache: Path, adapter: Path) -> None:
    ray_data = pytest.importorskip("rho_eos.cluster.ray_data")
    repo = hub.repos[ADAPTER] = Repo.of(adapter)
    given = {"model": MODEL, "adapter": [ADAPTER, str(adapter)]}
    pinned = ray_data._same_everywhere(given)["adapter"]
    assert pinned == [f"{ADAPTER}@{repo.names['main']}", str(adapter)]


def test_an_evaluation_is_of_one_adapter(command: Command, tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("two", 2)):
        make_adapter(tmp_path / name, EMBEDDED["tiny"], seed, target_modules=["v_proj"])
    words = ["eval", "--tasks", "tiny-gsm", "--limit", "1", "--out", tmp_path / "run"]
    assert command(*words, "--adapter", tmp_path / "one").code == 0
    [row] = tidy_rows(tmp_path / "run")
    assert row["adapters"].startswith("one ")
    assert command(*words, "--adapter", tmp_path / "one").code == 0
    for other in (["--adapter", tmp_path / "two"], []):
        refusal = command(*words, *other)
        assert refusal.code == 2 and "adapters" in refusal.err


def names_in(folder: Path) -> set[str]:
    found: set[str] = set()
    for file in folder.glob("*.safetensors"):
        if file.name != "io.safetensors":
            with safe_open(file, framework="pt") as weights:
                found |= set(weights.keys())
    return found


@pytest.mark.parametrize(
    "name", ["llada-gqa", "llada-tied", "llada-sharded", "dream", "llada2-moe", "sdar-moe"]
)
def test_a_merged_checkpoint_is_one_of_the_same_kind(name: str, tmp_path: Path, run: Run) -> None:
    make_adapter(tmp_path / "adapter", PARITY / name, target_modules=["q_proj", "v_proj"])
    ids = [f"--{field.replace('_', '-')}={id}" for field, id in IDS.items()]
    words = ["merge", str(PARITY / name), "--adapter", str(tmp_path / "adapter"), *ids]
    merged = tmp_path / "new" / "merged"
    assert run(*words, "--out", str(merged)).code == 0
    assert names_in(merged) == names_in(PARITY / name)
    own = json.loads((merged / "config.json").read_text())
    assert own == json.loads((PARITY / name / "config.json").read_text())
    wanted = logits_of(load(PARITY / name, adapter=str(tmp_path / "adapter")), name)
    assert close(logits_of(load(merged), name), wanted)
    before = merged.stat().st_mtime_ns
    assert "exists already" in refused(run, *words, "--out", str(merged))
    assert merged.stat().st_mtime_ns == before


def test_a_head_that_was_tied_to_the_embedding_gets_weights_of_its_own(
    tmp_path: Path, run: Run
) -> None:
    """PEFT adds to the embedding where it is looked up, and not where it is the head."""
    name, merged = "llada-tied", tmp_path / "merged"
    model = changed(tmp_path, name)
    wrapped = make_adapter(tmp_path / "adapter", model, target_modules=["embed_tokens"])
    wanted = logits_of(wrapped, name)
    assert close(logits_of(load(model, adapter=str(tmp_path / "adapter")), name), wanted)
    options = ["--mask-token-id=3", "--eos-token-id=2", "--adapter", str(tmp_path / "adapter")]
    assert run("merge", str(model), *options, "--out", str(merged)).code == 0
    assert close(logits_of(load(merged), name), wanted)


def test_merging_needs_an_adapter_and_quantises_nothing(tmp_path: Path, run: Run) -> None:
    assert "--adapter" in refused(run, "merge", "tiny", "--out", str(tmp_path / "x"))
    words = ["--adapter", str(tmp_path / "adapter"), "--out", str(tmp_path / "x")]
    assert "quantise" in refused(run, "merge", "tiny", "--quantization", "int8", *words)
    assert not (tmp_path / "x").exists()
