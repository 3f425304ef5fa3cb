"""The server tells its clients, and so the playground, when `tiny` is asked what it cannot know."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from rho_eos import LLM
from rho_eos.embedded.scope import EXAMPLE, NOTE
from rho_eos.server.app import create_app
from rho_eos.server.config import ServerConfig
from rho_eos.server.service import Service


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    app = create_app(Service(LLM("tiny"), ServerConfig()))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


def _ask(client: TestClient, prompt: str, **more: Any) -> Any:
    body = {"model": "tiny", "messages": [{"role": "user", "content": prompt}], "max_tokens": 64}
    return client.post("/v1/chat/completions", json=body | more)


def test_the_answer_has_a_note_where_there_is_something_to_note(client: TestClient) -> None:
    assert _ask(client, "Count to three.").json()["note"] == NOTE
    assert "note" not in _ask(client, EXAMPLE).json()
    plain = {"model": "tiny", "prompt": ["Count to three.", EXAMPLE], "max_tokens": 16}
    assert client.post("/v1/completions", json=plain).json()["note"] == NOTE


@pytest.mark.parametrize(("prompt", "note"), [("Count to three.", NOTE), (EXAMPLE, None)])
def test_a_denoising_stream_starts_with_it(
    client: TestClient, prompt: str, note: str | None
) -> None:
    text = _ask(client, prompt, stream=True, stream_mode="denoise").text
    first = json.loads(text.split("\n")[0].removeprefix("data: "))
    assert first["object"] == "rho_eos.start" and first["note"] == note
