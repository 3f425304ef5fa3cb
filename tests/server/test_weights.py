"""A trainer replaces the weights of a served model, and nobody else does."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file, save, save_file

from rho_eos import LLM, UserError
from rho_eos.models.known import EMBEDDED
from rho_eos.server.config import ServerConfig
from tests.scripted import says
from tests.server.clients import Web, error_of
from tests.server.scripted_server import ControlledRunner, serving

PROMPT = "Ann has 9 coins. 1) loses 4. 2) triples them. How many are left?"
LIMITS = {"initial_length": 24, "max_tokens": 64, "threshold": 0.6}
KEY = {"Authorization": "Bearer trainer"}
BINARY = KEY | {"Content-Type": "application/octet-stream"}
FILE = "model.safetensors"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="module")
def web(folder: Path) -> Iterator[Web]:
    """A real model in a real server: `tiny`, which becomes `terse` and back."""
    config = {"weights_key": "trainer", "weights_folder": str(folder), "api_key": ("client",)}
    with serving(ControlledRunner(says("")), llm=LLM("tiny"), **config) as server:
        server.http.headers["Authorization"] = "Bearer client"
        yield server.http


def answer(web: Web) -> tuple[str, int]:
    body = web.complete(prompt=PROMPT, **LIMITS).json()
    return body["choices"][0]["text"], body["usage"]["rho_eos"]["weights_version"]


def weights(name: str) -> bytes:
    return save(load_file(EMBEDDED[name] / FILE))


def test_weights_are_replaced_by_body_and_by_path(web: Web, folder: Path) -> None:
    limits = {"initial_length": 24, "max_new_tokens": 64, "threshold": 0.6}
    expected = LLM("terse").generate([PROMPT], limits, raw=True)[0].text
    first, version = answer(web)
    assert version == 0
    replaced = web.post("/v1/weights", content=weights("terse"), headers=BINARY)
    assert replaced.json() == {"object": "weights", "weights_version": 1}
    second, version = answer(web)
    assert version == 1 and second == expected != first
    (folder / "step").mkdir(exist_ok=True)
    (folder / "step" / FILE).write_bytes(weights("tiny"))
    for number, path in enumerate((f"step/{FILE}", "step")):
        replaced = web.post("/v1/weights", json={"path": path}, headers=KEY)
        assert replaced.json()["weights_version"] == number + 2
        assert answer(web) == (first, number + 2)


def test_who_may(web: Web) -> None:
    for key in ("Bearer client", "Bearer wrong", ""):
        headers = BINARY | {"Authorization": key}
        refused = web.post("/v1/weights", content=weights("terse"), headers=headers)
        assert error_of(refused, 401)["code"] == "invalid_api_key"
    refused = web.post("/v1/completions", json={"prompt": PROMPT}, headers=KEY)
    assert error_of(refused, 401)["code"] == "invalid_api_key"
    with serving(ControlledRunner(says("ok"))) as server:
        missing = server.http.post("/v1/weights", content=b"", headers=BINARY)
        assert error_of(missing, 404)["code"] == "not_found"
    with pytest.raises(UserError, match="one of its own"):
        ServerConfig(api_key=("a",), weights_key="a").key_of_weights({})
    assert ServerConfig().key_of_weights({"RHO_EOS_WEIGHTS_KEY": " b "}) == "b"


def test_what_cannot_be_used_changes_nothing(web: Web, folder: Path, tmp_path: Path) -> None:
    before = answer(web)
    tensors = load_file(EMBEDDED["terse"] / FILE)
    save_file(tensors, tmp_path / FILE)
    (folder / "link").symlink_to(tmp_path)
    unknown = save(tensors | {"other.weight": next(iter(tensors.values())).clone()})
    cut = save(tensors)[:-100]
    deep = b'{"path": ' + b"[" * 5000
    for headers, content, status, said in (
        (BINARY, unknown, 400, "other.weight is no weight of this model"),
        (BINARY, cut, 400, "no safetensors"),
        (BINARY, b"", 400, "no safetensors"),
        (KEY | {"Content-Type": "text/plain"}, b"", 415, "application/octet-stream"),
        (KEY | {"Content-Type": "application/json"}, deep, 400, "path"),
    ):
        refused = web.post("/v1/weights", content=content, headers=headers)
        assert said in error_of(refused, status)["message"]
    for path in ("..", "link", f"link/{FILE}", str(tmp_path), "missing", "a\0b", "/etc/passwd"):
        refused = web.post("/v1/weights", json={"path": path}, headers=KEY)
        assert "no such weights" in error_of(refused, 400)["message"]
    assert answer(web) == before


def test_a_body_has_a_limit() -> None:
    config = {"weights_key": "trainer", "max_weights_bytes": 1000}
    with serving(ControlledRunner(says("ok")), **config) as server:
        refused = server.http.post("/v1/weights", content=b"x" * 1001, headers=BINARY)
        assert error_of(refused, 413)["code"] == "body_too_large"
        assert server.chat().status_code == 200


def test_streams_that_run_finish_on_the_old_weights(web: Web) -> None:
    started, found = threading.Event(), {}

    def read() -> None:
        body = {"prompt": PROMPT, "stream": True, "stream_mode": "denoise", **LIMITS}
        with web.stream("POST", "/v1/completions", json=body) as stream:
            for line in stream.iter_lines():
                if line.startswith("data: {"):
                    started.set()
                    found["last"] = json.loads(line.removeprefix("data: "))

    _, version = answer(web)
    thread = threading.Thread(target=read)
    thread.start()
    assert started.wait(60)
    assert web.post("/v1/weights", content=weights("terse"), headers=BINARY).status_code == 200
    thread.join(60)
    assert found["last"]["object"] == "rho_eos.done"
    assert found["last"]["usage"]["rho_eos"]["weights_version"] == version
    assert answer(web)[1] == version + 1
